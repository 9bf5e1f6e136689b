import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Principal } from '../../src/effects/model/principal.ts';
import { resolveEffect } from '../../src/effects/run/resolve-effect.ts';
import { refund, type Rig, startRig } from './rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

it('force takes a second user: not the one whose key ran the effect, and no key without one', async () => {
  rig.loseNextAnswer();
  const run = await rig.send('POST', '/v1/workspaces/demo/effects', { body: refund() });
  expect(run.json).toMatchObject({ decision: 'unknown_effect' });
  const principal = (user: string | null): Principal => ({
    kind: 'account',
    keyId: `key_of_${user ?? 'nobody'}`,
    workspace: 'demo',
    user,
    madeBy: null,
    keyCreatedAt: 0,
    readOnly: false,
    allowedTools: null,
  });
  const allowed = { ...rig.core, settings: () => ({ ...rig.core.settings(), allowForce: true }) };
  const force = (ports: typeof rig.core, user: string | null) =>
    resolveEffect(ports, {
      principal: principal(user),
      workspace: 'demo',
      effectId: String(run.json['effect_id']),
      outcome: 'not_happened',
      evidence: null,
      comment: null,
      force: true,
    });
  // Off by default, for everybody.
  expect(await force(rig.core, 'maria')).toMatchObject({ kind: 'problem', problem: { code: 'too_early' } });
  // `ops` is the user whose key ran it.
  expect(await force(allowed, 'ops')).toMatchObject({ kind: 'problem', problem: { code: 'own_request' } });
  expect(await force(allowed, null)).toMatchObject({ kind: 'problem', problem: { code: 'own_request' } });
  expect(await force(allowed, 'maria')).toMatchObject({
    kind: 'resolved',
    effect: { life: { state: 'failed', settledBy: { user: 'maria', forced: true } } },
  });
});
