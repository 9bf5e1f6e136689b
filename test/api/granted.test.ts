import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dispatchGranted, type People } from '../../src/effects/run/decide-approval.ts';
import type { EffectPorts } from '../../src/effects/ports.ts';
import { refund, type Rig, startRig } from './rig.ts';

const WS = 'demo';
const EFFECTS = '/v1/workspaces/demo/effects';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

let payments = 0;

/** A call that waits, and a vote by which it is granted, without the gateway sending it. */
async function granted() {
  payments += 1;
  const params = { payment_id: 'pay_2', amount: 60_000 + payments, currency: 'EUR' };
  const run = await rig.send('POST', EFFECTS, { body: refund({ params }) });
  const { store } = rig.core;
  const asked = await store.effect(WS, String(run.json['effect_id']));
  if (asked?.life.state !== 'pending_approval') throw new Error(`it waits: ${run.text}`);
  const voted = await store.vote({
    workspace: WS,
    approvalId: asked.life.approvalId,
    verdict: 'approve',
    user: 'maria',
    keyId: 'key_of_maria',
    voterSince: 0,
    comment: null,
    requirements: [0],
    actor: { type: 'user', id: 'maria' },
  });
  if (voted.kind !== 'counted') throw new Error(`granted: ${voted.kind}`);
  return voted;
}

type Changes = { readonly ports?: Partial<EffectPorts>; readonly people?: Partial<People> };

/** What the gateway does with a granted call when something is not there any more. */
async function sent({ ports = {}, people = {} }: Changes) {
  const { approval, effect } = await granted();
  const became = await dispatchGranted({ ...rig.core, ...ports }, { ...rig.people, ...people }, approval, effect);
  const { store } = rig.core;
  return { became, approval: await store.approval(WS, approval.id), effect: await store.effect(WS, effect.id) };
}

describe('a granted call', () => {
  const bot = () => {
    const agent = rig.people.agent(WS, 'bot');
    if (agent === null) throw new Error('there is a bot');
    return agent;
  };

  it('is sent while everything is there', async () => {
    const { became, effect } = await sent({});
    expect(became).toMatchObject({ kind: 'dispatched', outcome: { decision: 'committed' } });
    expect(effect?.life.state).toBe('committed');
  });

  it.each([
    ['the key is not valid any more', 'key_ended', 'denied_permission', () => ({ people: { key: async () => null } })],
    [
      'the agent is disabled',
      'agent_disabled',
      'denied_identity',
      () => ({ people: { agent: () => ({ ...bot(), disabled: true }) } }),
    ],
    ['the agent is gone', 'unknown_agent', 'denied_identity', () => ({ people: { agent: () => null } })],
    [
      'the tool is gone',
      'tool_not_declared',
      'denied_policy',
      () => ({ ports: { catalog: () => ({ ...rig.core.catalog(), tool: () => null }) } }),
    ],
    [
      'the params cannot be read',
      'params_unreadable',
      'denied_policy',
      () => ({ ports: { secrets: { ...rig.core.secrets, open: () => null } } }),
    ],
  ] as const)('ends where %s', async (_why, code, decision, changes) => {
    const { became, approval, effect } = await sent(changes());
    expect(became).toMatchObject({ kind: 'ended', reason: { code } });
    expect(approval).toMatchObject({ status: 'expired', stopped: { decision, reason: { code } } });
    expect(effect).toMatchObject({ life: { state: 'denied', decision, reason: { code } } });
    const ledger = await rig.core.store.effectLedger(WS, effect?.id ?? '');
    expect(ledger.at(-1)).toMatchObject({ kind: 'approval.expired', data: { approval_id: approval?.id, code } });
    expect((await rig.core.store.grantedApprovals(10)).map(({ id }) => id)).not.toContain(approval?.id);
  });

  it('the key that asked must be valid: revoked, and rotated out, it is not', async () => {
    const { effect } = await granted();
    const keyId = effect.actor.keyId;
    expect(await rig.people.key(keyId)).not.toBeNull();
    const keys = '/v1/beta/users/ola/keys';
    const make = async (): Promise<string> => {
      const body = { name: 'a', kind: 'account', workspace: WS };
      return String((await rig.send('POST', keys, { key: rig.keys.admin, body })).json['id']);
    };
    const revoked = await make();
    await rig.send('DELETE', `${keys}/${revoked}`, { key: rig.keys.admin });
    expect(await rig.people.key(revoked)).toBeNull();
    const rotated = await make();
    await rig.send('POST', `${keys}/${rotated}/rotate`, { key: rig.keys.admin, body: { overlap: 0 } });
    expect(await rig.people.key(rotated)).toBeNull();
    expect(await rig.people.key('key_000000000000')).toBeNull();
  });
});
