import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { type PolicyProposal, proposalTerms } from '../../src/effects/model/policy-proposal.ts';
import type { Principal } from '../../src/effects/model/principal.ts';
import { Agreement } from '../../src/gateway/files-in-force.ts';
import { FileReader } from '../../src/gateway/file-reader.ts';
import { readFiles } from '../../src/gateway/in-force.ts';
import { Proposals } from '../../src/gateway/policy-proposals.ts';
import { Reloader } from '../../src/gateway/reload.ts';
import { ONLY } from '../../src/records/control-rows.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { proposalRows } from '../../src/records/policies.ts';
import { createStepRunner } from '../../src/records/runner.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';
import { administrator } from './administrator.ts';
import { POLICY_SEALS } from './policy-seals.ts';

/* Gateways over one store of rows, where two people have to stand behind policies. */

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const [MARIA, OMAR, ZOE] = [administrator('maria'), administrator('omar'), administrator('zoe')];

function world() {
  let time = 1_000_000;
  const rows = mapStore(emptyRows(), () => {
    time += 1;
    return time;
  });
  /** Administrative keys of users, by who made them. */
  const keys = new Map<string, { readonly kind: 'administrative'; readonly madeBy: string | null }[]>();
  let ids = 0;

  /** A gateway that starts with files that have this rule. */
  async function start(rule: string) {
    const folder = mkdtempSync(join(tmpdir(), 'svc-of-two-'));
    closers.push(async () => rmSync(folder, { recursive: true, force: true }));
    const write = (of: string): void =>
      writeFileSync(
        join(folder, 'policy.yaml'),
        `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: a\nrules:\n  - { id: ${of}, effect: allow, match: { tools: [up.note] } }\n`,
      );
    const configFile = join(folder, 'gateway.yaml');
    writeFileSync(
      configFile,
      `upstreams: [{ id: up, url: "http://127.0.0.1:9" }]\nusers: [{ id: maria }, { id: omar }, { id: zoe }]\npolicies: { paths: ["${folder}/policy.yaml"], second_person: true }\ntools:\n  - { name: up.note, title: Note, upstream: up, kind: write, action_type: note.add, request: { method: POST, path: /v1/notes, body: [text] } }\n`,
    );
    const configure = (change: (text: string) => string): void =>
      writeFileSync(configFile, change(readFileSync(configFile, 'utf8')));
    write(rule);
    const store = createEffectStore(
      { ...rows, ...ALONE },
      { retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 }, keySeals: KEY_SEALS, maxFreezeMs: 0 },
    );
    closers.push(() => store.close());
    let inForce = await readFiles(configFile, {});
    const persons = {
      isUser: (user: string) => ['maria', 'omar', 'zoe'].includes(user),
      since: async () => 1,
      keys: async (user: string) => keys.get(user) ?? [],
    };
    const newId = (): string => {
      ids += 1;
      return `ppl_${ids}`;
    };
    const reloader = new Reloader({
      configFile,
      environment: {},
      store,
      seals: POLICY_SEALS,
      proposals: new Proposals({ store, seals: POLICY_SEALS, persons, newId }),
      current: () => inForce,
      adopt: (next) => {
        inForce = next;
      },
      noted: (same) => {
        inForce = same;
      },
      reader: new FileReader({ entry: null, longestMs: 60_000 }),
      owner: 'test',
      logger: createLogger({ level: 'fatal', sink: { write: () => undefined } }),
      metrics: { alerted: () => undefined },
    });
    closers.push(() => reloader.settled());
    await reloader.begin('no');
    const agreement = new Agreement(null, () => inForce, true);
    return {
      store,
      reloader,
      write,
      configFile,
      configure,
      async edit(of: string) {
        write(of);
        await reloader.reload();
      },
      rules: () => inForce.policies.rules.map(({ id }) => id),
      version: () => inForce.policies.version,
      notes: () => agreement.notes().map(({ message }) => message),
      /** Proposes what the files say. */
      async propose(by: Principal) {
        const chosen = await reloader.choose({ kind: 'files' }, by, 'because');
        if (chosen.kind !== 'proposed') throw new Error(chosen.kind);
        return chosen.proposal;
      },
      statuses: async () => (await store.policyProposals()).map(({ id, ended }) => [id, ended?.as ?? 'open']),
      events: async () =>
        (await rows.ledger({ workspace: INSTALLATION, about: null, order: 'up', after: null, limit: 100 }))
          .map(({ text }): [string, string, string, object] => JSON.parse(text))
          .filter(([kind]) => kind.startsWith('policy.') && kind !== 'policy.loaded')
          .map(([kind, , id]) => `${kind} by ${id}`),
      async alter(change: (proposal: PolicyProposal) => PolicyProposal) {
        await createStepRunner(rows).run(INSTALLATION, (draft) =>
          proposalRows.put(draft, ONLY, (proposalRows.get(draft, ONLY) ?? []).map(change)),
        );
      },
    };
  }
  return {
    start,
    keys,
    pass: (ms: number): void => {
      time += ms;
    },
  };
}

it('the first files are in force; what somebody wants instead is proposed, read by others, and in force when one confirms', async () => {
  const { start } = world();
  const gateway = await start('one');
  const one = gateway.version();
  expect(gateway.rules()).toEqual(['a/one']);
  await gateway.edit('one');
  // What is in force already waits for nobody.
  expect(await gateway.reloader.choose({ kind: 'files' }, MARIA)).toEqual({ kind: 'active', version: one });
  gateway.write('two');
  const proposal = await gateway.propose(MARIA);
  expect(proposal).toMatchObject({ from: one, how: 'activate', why: 'because', people: [{ user: 'maria' }] });
  expect([gateway.rules(), await gateway.store.policyInForce()]).toEqual([['a/one'], one]);
  expect(await gateway.reloader.show(proposal.version)).toMatchObject({
    isProven: true,
    files: [{ text: expect.stringContaining('id: two,') }],
  });
  // The same again is the same proposal.
  expect((await gateway.propose(MARIA)).id).toBe(proposal.id);
  expect(await gateway.reloader.confirm(proposal.id, OMAR)).toMatchObject({
    kind: 'active',
    version: proposal.version,
  });
  expect([gateway.rules(), await gateway.store.policyInForce()]).toEqual([['a/two'], proposal.version]);
  expect(await gateway.statuses()).toEqual([[proposal.id, 'confirmed']]);
  expect((await gateway.store.policyHistory())[0]).toMatchObject({
    version: proposal.version,
    by: { id: 'maria' },
    how: 'activate',
    why: 'because',
    confirmedBy: ['omar'],
  });
  expect(await gateway.events()).toEqual([
    'policy.activated by test',
    'policy.proposed by maria',
    'policy.confirmed by omar',
    'policy.activated by omar',
  ]);
  // And so is the way back.
  const back = await gateway.reloader.choose({ kind: 'before' }, OMAR);
  if (back.kind !== 'proposed') throw new Error(back.kind);
  expect(back).toMatchObject({ version: proposal.version, proposal: { version: one } });
  expect(gateway.rules()).toEqual(['a/two']);
  expect(await gateway.reloader.confirm(back.proposal.id, MARIA)).toMatchObject({ kind: 'active', version: one });
  expect((await gateway.store.policyHistory())[0]).toMatchObject({ by: { id: 'omar' }, confirmedBy: ['maria'] });
  expect((await gateway.events()).at(-1)).toBe('policy.rolled_back by maria');
});

it('what was proposed comes in force on a gateway whose files say something else, as it was proposed', async () => {
  const { start } = world();
  const [first, second] = [await start('one'), await start('one')];
  first.write('two');
  const { id } = await first.propose(MARIA);
  first.write('three');
  expect(await second.reloader.confirm(id, OMAR)).toMatchObject({ kind: 'active' });
  await first.reloader.follow();
  expect([first.rules(), second.rules()]).toEqual([['a/two'], ['a/two']]);
});

it('edited files are proposed and not in force, also over a start; two people have to confirm what nobody has signed', async () => {
  const { start } = world();
  const gateway = await start('one');
  await gateway.edit('two');
  expect(gateway.rules()).toEqual(['a/one']);
  expect(gateway.notes()).toEqual([expect.stringContaining('svc policy proposals')]);
  const again = await start('two');
  expect(again.rules()).toEqual(['a/one']);
  const [proposal, ...others] = await gateway.store.policyProposals();
  if (proposal === undefined) throw new Error('nothing was proposed');
  expect([others, proposal.how, proposal.people]).toEqual([[], 'files', []]);
  expect(await gateway.reloader.confirm(proposal.id, MARIA)).toMatchObject({
    kind: 'counted',
    proposal: { people: [{ user: 'maria' }] },
  });
  expect((await gateway.events()).slice(-2)).toEqual(['policy.proposed by test', 'policy.confirmed by maria']);
  expect(await gateway.reloader.confirm(proposal.id, MARIA)).toMatchObject({ kind: 'own_request' });
  expect(gateway.rules()).toEqual(['a/one']);
  expect(await gateway.reloader.confirm(proposal.id, OMAR)).toMatchObject({ kind: 'active' });
  expect([gateway.rules(), gateway.notes()]).toEqual([['a/two'], []]);
  expect((await gateway.store.policyHistory())[0]).toMatchObject({ how: 'files', confirmedBy: ['maria', 'omar'] });
});

it('files that say something else at a start are proposed, and not in force', async () => {
  const { start } = world();
  const before = await start('one');
  const gateway = await start('two');
  expect(gateway.rules()).toEqual(['a/one']);
  const [proposal, ...others] = await gateway.store.policyProposals();
  expect([others, proposal]).toEqual([[], expect.objectContaining({ from: before.version(), how: 'files' })]);
  expect(await gateway.reloader.show(proposal?.version ?? '')).toMatchObject({
    files: [{ text: expect.stringContaining('id: two,') }],
  });
});

it('later files take the place of those before, and files that say again what is in force withdraw them', async () => {
  const { start } = world();
  const gateway = await start('one');
  await gateway.edit('two');
  await gateway.edit('three');
  expect(await gateway.statuses()).toEqual([
    ['ppl_2', 'open'],
    ['ppl_1', 'withdrawn'],
  ]);
  await gateway.edit('one');
  expect(await gateway.statuses()).toEqual([
    ['ppl_2', 'withdrawn'],
    ['ppl_1', 'withdrawn'],
  ]);
  expect(await gateway.reloader.confirm('ppl_2', OMAR)).toMatchObject({ kind: 'refused' });
});

it('what cannot come in force any more is refused with the reason, and nothing is changed', async () => {
  const { start } = world();
  const gateway = await start('one');
  gateway.configure((text) => `${text}pools: [ { id: slot, units: 1 } ]\n`);
  const [, file = ''] = /paths: \["([^"]+)"/.exec(readFileSync(gateway.configFile, 'utf8')) ?? [];
  const obligations = 'obligations: [ { reserve: { pool: slot, units: 1 } } ], effect: allow';
  writeFileSync(file, readFileSync(file, 'utf8').replace('effect: allow', obligations));
  const { id } = await gateway.propose(MARIA);
  gateway.configure((text) => text.replace(/pools:.*\n/, ''));
  const before = await gateway.store.policyInForce();
  expect(await gateway.reloader.confirm(id, OMAR)).toMatchObject({
    kind: 'refused',
    message: expect.stringContaining("There is no pool 'slot'"),
  });
  expect([await gateway.store.policyInForce(), await gateway.statuses()]).toEqual([before, [[id, 'open']]]);
  gateway.configure((text) => `${text}pools: [ { id: slot, units: 1 } ]\n`);
  expect(await gateway.reloader.confirm(id, OMAR)).toMatchObject({ kind: 'active' });
});

it.each([
  ['the same person, with another key', administrator('maria', { keyId: 'key_other' })],
  ['the same key', administrator('omar', { keyId: 'key_maria' })],
  ['a key that the first one made', administrator('omar', { madeBy: 'maria' })],
  ['a key that was made with a key that the first one made', administrator('omar', { madeBy: 'zoe' })],
  ['a key that its owner rotated with one that the first one made', administrator('omar', { madeBy: 'omar' })],
  ['a key that is younger than the proposal', administrator('omar', { keyCreatedAt: 9e15 })],
  ['a key of nobody', administrator(null)],
  ['a user whom the configuration does not name', administrator('ghost')],
])('is confirmed by another person, and not by %s', async (_, confirmer) => {
  const { start, keys } = world();
  for (const user of ['zoe', 'omar']) keys.set(user, [{ kind: 'administrative', madeBy: 'maria' }]);
  const gateway = await start('one');
  gateway.write('two');
  const { id } = await gateway.propose(MARIA);
  expect(await gateway.reloader.confirm(id, confirmer)).toMatchObject({ kind: 'own_request' });
  expect([gateway.rules(), await gateway.statuses()]).toEqual([['a/one'], [[id, 'open']]]);
});

it('who made the key of the first one is no second person; of a key of nobody two have to confirm it', async () => {
  const { start } = world();
  const gateway = await start('one');
  gateway.write('two');
  const made = await gateway.propose(administrator('maria', { madeBy: 'omar' }));
  expect(await gateway.reloader.confirm(made.id, OMAR)).toMatchObject({ kind: 'own_request' });
  const ofNobody = await gateway.propose(administrator(null));
  expect(ofNobody.people).toEqual([]);
  expect(await gateway.reloader.confirm(ofNobody.id, MARIA)).toMatchObject({ kind: 'counted' });
  expect(await gateway.reloader.confirm(ofNobody.id, ZOE)).toMatchObject({ kind: 'active' });
});

it('is over after a day, when something else comes in force, and when it is withdrawn', async () => {
  const { start, pass } = world();
  const gateway = await start('one');
  gateway.write('two');
  const late = await gateway.propose(MARIA);
  expect(late.expiresAt - late.at).toBe(24 * 3_600_000);
  pass(24 * 3_600_000);
  expect(await gateway.reloader.confirm(late.id, OMAR)).toMatchObject({ kind: 'refused' });
  const [open, other] = [await gateway.propose(MARIA), await gateway.propose(ZOE)];
  expect(await gateway.reloader.confirm(other.id, OMAR)).toMatchObject({ kind: 'active' });
  // It stays over, also when what it was made from is back.
  const back = await gateway.reloader.choose({ kind: 'before' }, MARIA);
  if (back.kind !== 'proposed') throw new Error(back.kind);
  expect(await gateway.reloader.confirm(back.proposal.id, ZOE)).toMatchObject({ kind: 'active' });
  expect(gateway.rules()).toEqual(['a/one']);
  expect(await gateway.reloader.confirm(open.id, OMAR)).toMatchObject({ kind: 'refused' });
  const withdrawn = await gateway.propose(ZOE);
  expect(await gateway.store.endPolicyProposals({ id: withdrawn.id }, { type: 'user', id: 'omar' })).toBe(1);
  expect((await gateway.events()).at(-1)).toBe('policy.withdrawn by omar');
  expect(await gateway.reloader.confirm(withdrawn.id, OMAR)).toMatchObject({ kind: 'refused' });
  expect(await gateway.reloader.confirm('ppl_none', OMAR)).toEqual({ kind: 'absent' });
});

it('counts for nothing when something else than a gateway wrote it, and is not put in force by the store alone', async () => {
  const { start } = world();
  const gateway = await start('one');
  gateway.write('two');
  const { id, version } = await gateway.propose(MARIA);
  await gateway.alter((proposal) => ({
    ...proposal,
    people: [...proposal.people, { user: 'zoe', keyId: 'key_zoe', makers: [] }],
  }));
  expect(await gateway.reloader.confirm(id, OMAR)).toMatchObject({ kind: 'refused' });
  expect(await gateway.reloader.show(version)).toEqual({ kind: 'not_kept' });
  // Its files have no seal as long as nobody has confirmed them.
  expect(await gateway.store.policyBundle(version)).toMatchObject({ seal: '' });
  gateway.write('one');
  await gateway.store.activatePolicy(version, []);
  await gateway.reloader.follow();
  expect(gateway.rules()).toEqual(['a/one']);
  expect(gateway.reloader.hindrance()).toContain(version);
});

const KNOWN: PolicyProposal = {
  id: 'ppl_1',
  version: 'v2',
  from: 'v1',
  how: 'files',
  by: { type: 'user', id: 'maria' },
  why: 'because',
  files: ['a.yaml'],
  people: [{ user: 'maria', keyId: 'key_1', makers: ['omar'] }],
  at: 1,
  expiresAt: 2,
  seal: '',
};

it.each<Partial<PolicyProposal>>([
  { id: 'ppl_2' },
  { version: 'v3' },
  { from: 'v0' },
  { how: 'rollback' },
  { by: { type: 'gateway', id: 'maria' } },
  { by: { type: 'user', id: 'zoe' } },
  { why: 'for fun' },
  { files: ['b.yaml'] },
  { files: [] },
  { people: [] },
  { people: [{ user: 'zoe', keyId: 'key_1', makers: ['omar'] }] },
  { people: [{ user: 'maria', keyId: 'key_2', makers: ['omar'] }] },
  { people: [{ user: 'maria', keyId: 'key_1', makers: [] }] },
  { at: 0 },
  { expiresAt: 3 },
])('its seal covers all that it says: not one with %j', (altered) => {
  const seal = POLICY_SEALS.sealProposal(proposalTerms(KNOWN));
  const fits = (proposal: PolicyProposal): boolean => POLICY_SEALS.fitsProposal(proposalTerms(proposal), seal);
  expect([fits({ ...KNOWN }), fits({ ...KNOWN, ...altered })]).toEqual([true, false]);
});

it('ten are open at most, and what is over leaves no files behind', async () => {
  const { start } = world();
  const gateway = await start('one');
  const versions: string[] = [];
  for (let n = 0; n < 10; n += 1) {
    gateway.write(`r${n}`);
    versions.push((await gateway.propose(MARIA)).version);
  }
  gateway.write('r10');
  expect(await gateway.reloader.choose({ kind: 'files' }, MARIA)).toMatchObject({ kind: 'refused' });
  const [, second] = await gateway.store.policyProposals();
  await gateway.store.endPolicyProposals({ id: second?.id ?? '' }, { type: 'user', id: 'maria' });
  const kept = await Promise.all(versions.map(async (version) => (await gateway.store.policyBundle(version)) !== null));
  expect(kept).toEqual(versions.map((version) => version !== second?.version));
});

it('one that is open stays, however many come and are over after it', async () => {
  const { start } = world();
  const gateway = await start('one');
  gateway.write('two');
  const { id } = await gateway.propose(OMAR);
  for (let n = 0; n < 21; n += 1) {
    const { id: other } = await gateway.propose(MARIA);
    await gateway.store.endPolicyProposals({ id: other }, { type: 'user', id: 'maria' });
  }
  const statuses = await gateway.statuses();
  expect(statuses.length).toBeLessThan(22);
  expect(statuses.filter(([, status]) => status === 'open')).toEqual([[id, 'open']]);
});
