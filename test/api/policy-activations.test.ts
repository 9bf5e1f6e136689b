import { afterEach, beforeEach, expect, it } from 'vitest';
import { ledgerActor } from '../../src/effects/model/principal.ts';
import type { ChosenPolicy, PolicyChoice } from '../../src/api/ports.ts';
import { type Rig, startRig } from './rig.ts';

const ACTIVATIONS = '/v1/beta/policies/activations';
let rig: Rig;
let asked: PolicyChoice[];
/** By whom, and why. */
let reasons: unknown[];
let answer: ChosenPolicy;
beforeEach(async () => {
  asked = [];
  reasons = [];
  answer = { kind: 'not_kept' };
  rig = await startRig(
    {},
    {
      choosePolicy: async (choice, by, why) => {
        asked.push(choice);
        const { type, id } = ledgerActor(by);
        reasons.push([type, id, why]);
        return answer;
      },
    },
  );
});
afterEach(() => rig.close());

const post = (path: string, body: object) => rig.send('POST', path, { key: rig.keys.admin, body });

it('says what is in force, what the files say, and who put it there', async () => {
  const version = rig.ports.policies().set.version;
  const by = { type: 'user', id: 'maria' } as const;
  const history = await rig.send('GET', ACTIVATIONS, { key: rig.keys.admin });
  expect(history.json).toEqual({ in_force: version, files_version: version, activations: [] });
  await rig.ports.store.activatePolicy('another', [], { by, how: 'rollback', bundle: null, again: 'yes' });
  const now = await rig.send('GET', ACTIVATIONS, { key: rig.keys.admin });
  expect(now.json).toMatchObject({
    in_force: 'another',
    files_version: version,
    activations: [{ version: 'another', by, how: 'rollback', at: expect.stringMatching(/^\d{4}-.*Z$/) }],
  });
});

it('puts in force what is asked for: the files, a version, those of before', async () => {
  const version = 'A'.repeat(43);
  answer = { kind: 'active', version };
  expect(await post(ACTIVATIONS, {})).toMatchObject({ status: 200, json: { version } });
  expect(await post(ACTIVATIONS, { version })).toMatchObject({ status: 200, json: { version } });
  expect(await post('/v1/beta/policies/rollback', {})).toMatchObject({ status: 200, json: { version } });
  expect(asked).toEqual([{ kind: 'files' }, { kind: 'version', version }, { kind: 'before' }]);
  await post(ACTIVATIONS, { comment: 'the audit asks for it' });
  await post('/v1/beta/policies/rollback', { comment: 'refunds fail' });
  expect(reasons[0]).toEqual(['user', 'root', null]);
  expect(reasons.slice(3)).toEqual([
    ['user', 'root', 'the audit asks for it'],
    ['user', 'root', 'refunds fail'],
  ]);
});

it('answers 202 where they are only proposed, by either way', async () => {
  const at = rig.ports.store.now();
  const terms = {
    id: 'ppl_1',
    version: 'B'.repeat(43),
    from: 'A',
    how: 'activate',
    by: { type: 'user', id: 'root' },
  } as const;
  answer = { kind: 'proposed', version: 'A', proposal: { ...terms, people: [], at, expiresAt: at + 1, seal: '' } };
  for (const path of [ACTIVATIONS, '/v1/beta/policies/rollback'])
    expect(await post(path, {})).toMatchObject({
      status: 202,
      json: { version: 'A', proposal: { id: 'ppl_1', version: terms.version, instead_of: 'A', still_needs: 2 } },
    });
});

it('says why not: none is kept, they do not fit, it is no version', async () => {
  expect(await post('/v1/beta/policies/rollback', {})).toMatchObject({ status: 404 });
  answer = { kind: 'refused', message: 'There is no pool slots.' };
  expect(await post(ACTIVATIONS, {})).toMatchObject({
    status: 409,
    json: { detail: 'Nothing was changed. There is no pool slots.' },
  });
  expect((await post(ACTIVATIONS, { version: 'short' })).status).toBe(400);
  expect((await post(ACTIVATIONS, { versions: 'A'.repeat(43) })).status).toBe(400);
  expect(asked).toHaveLength(2);
});

it('takes a comment of one to a thousand characters', async () => {
  answer = { kind: 'active', version: 'A'.repeat(43) };
  for (const path of [ACTIVATIONS, '/v1/beta/policies/rollback']) {
    const statuses = ['c', 'c'.repeat(1000), '', 'c'.repeat(1001)].map(
      async (comment) => (await post(path, { comment })).status,
    );
    expect(await Promise.all(statuses)).toEqual([200, 200, 400, 400]);
  }
});

it('is for administrative keys only', async () => {
  for (const key of [rig.keys.account, rig.keys.agent]) {
    expect((await rig.send('POST', ACTIVATIONS, { key, body: {} })).status).toBe(403);
    expect((await rig.send('GET', ACTIVATIONS, { key })).status).toBe(403);
  }
  expect(asked).toEqual([]);
});
