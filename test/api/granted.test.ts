import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { probeByItself } from '../../src/effects/run/probe-effect.ts';
import { dispatchGranted } from '../../src/effects/run/decide-approval.ts';
import type { People } from '../../src/effects/run/recall.ts';
import type { EffectPorts } from '../../src/effects/ports.ts';
import { join } from 'node:path';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
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
    digest: (await store.approval(WS, asked.life.approvalId))?.digest ?? '',
    change: null,
    verdict: 'approve',
    user: 'maria',
    keyId: 'key_of_maria',
    voterSince: 0,
    comment: null,
    requirements: [0],
    escalated: [],
    actor: { type: 'user', id: 'maria' },
  });
  if (voted.kind !== 'counted') throw new Error(`granted: ${voted.kind}`);
  return voted;
}

interface Changes {
  readonly ports?: Partial<EffectPorts>;
  readonly people?: Partial<People>;
  readonly effect?: Partial<EffectRecord>;
}

/** What the gateway does with a granted call when something is not there any more. */
async function sent({ ports = {}, people = {}, effect: changed = {} }: Changes) {
  const { approval, effect } = await granted();
  const by = { ...rig.people, ...people };
  const became = await dispatchGranted({ ...rig.core, ...ports }, by, approval, { ...effect, ...changed });
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
    ['the params were erased', 'params_unreadable', 'denied_policy', () => ({ effect: { sealed: null } })],
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

describe('whoever writes to the store without a gateway', () => {
  type Row = { votes: Record<string, unknown>[]; requirements: Record<string, unknown>[] } & Record<string, unknown>;

  /** Changes the row of a request for approval in the file of the store. */
  async function tamper(id: string, change: (row: Row) => void): Promise<void> {
    const openDatabase = await loadDriver();
    const database = openDatabase(join(rig.storeFolder(), 'store.db'));
    try {
      const found = database.prepare('SELECT text FROM rows WHERE id = ?').get(id);
      const row = JSON.parse(String(found?.['text']));
      change(row);
      database.prepare("UPDATE rows SET text = ?, version = version || 'x' WHERE id = ?").run(JSON.stringify(row), id);
    } finally {
      database.close();
    }
  }

  const ask = async (body: ReturnType<typeof refund>) => rig.send('POST', EFFECTS, { body });
  async function waiting() {
    payments += 1;
    const body = refund({ params: { payment_id: 'pay_2', amount: 60_000 + payments, currency: 'EUR' } });
    const { json } = await ask(body);
    const { id } = json['approval'] as unknown as { readonly id: string };
    return { body, id, effect: String(json['effect_id']) };
  }
  const decide = (id: string, key: string) =>
    rig.send('POST', `/v1/workspaces/demo/approvals/${id}/approve`, { key, body: {} });
  const vote = { user: 'maria', keyId: 'key_of_maria', verdict: 'approve', at: 1, comment: null, requirements: [0] };

  it.each<readonly [string, (row: Row) => void]>([
    ['another requester', (row) => Object.assign(row['requester'] as object, { user: 'nobody', keyMadeBy: 'nobody' })],
    [
      'other approvers',
      ({ requirements: [first] }) => Object.assign(first ?? {}, { approvers: { roles: [], users: ['ops'] } }),
    ],
    ['a smaller quorum', ({ requirements: [first] }) => Object.assign(first ?? {}, { quorum: 0 })],
    ['no seal', ({ requirements: [first] }) => delete first?.['sealedSummary']],
    ['one requirement less', (row) => row.requirements.pop()],
    ['a later beginning', (row) => (row['createdAt'] = Number(row['createdAt']) + 3_600_000)],
    ['a vote of somebody else', (row) => row.votes.push(vote)],
    ['a granted status', (row) => Object.assign(row, { status: 'granted', decidedAt: 1 })],
  ])('gets nothing approved by %s', async (_what, change) => {
    const { id, effect, body } = await waiting();
    await tamper(id, change);
    const decided = await decide(id, rig.keys.approver);
    expect([decided.status, decided.json['code']], decided.text).toEqual([409, 'conflict']);
    // Nor by asking again, nor by what the gateway does for itself.
    const again = await ask(body);
    expect(['pending_approval', 'denied_policy']).toContain(again.json['decision']);
    for (const approval of await rig.core.store.grantedApprovals(10)) {
      const of = await rig.core.store.effect(WS, approval.effectId);
      if (of !== null) await dispatchGranted(rig.core, rig.people, approval, of);
    }
    const after = await rig.core.store.effect(WS, effect);
    expect(['pending_approval', 'denied']).toContain(after?.life.state);
    expect(after?.attempt).toBeLessThanOrEqual(1);
    expect((await rig.core.store.approval(WS, id))?.isForged).toBe(true);
  });

  it('changes nothing where nothing was changed', async () => {
    const { id } = await waiting();
    await tamper(id, () => undefined);
    expect((await decide(id, rig.keys.approver)).json['became'], id).toMatchObject({ what: 'dispatched' });
  });
});

it('a probe that comes too late to settle puts what it read on record', async () => {
  const { approval, effect } = await granted();
  const { store } = rig.core;
  const seen = { code: 'gone', message: 'No answer.', answered: null, startedAt: null, endedAt: null };
  const silent = { ...rig.core.upstream, send: async () => ({ kind: 'unknown', evidence: seen }) as const };
  await dispatchGranted({ ...rig.core, upstream: silent }, rig.people, approval, effect);
  const lost = await store.effect(WS, effect.id);
  if (lost?.life.state !== 'unknown') throw new Error('its outcome is not known');
  const { life } = lost;
  const probe = { params: {}, happened: { state: 'done' }, notHappened: {}, everyMs: 1000, afterMs: 0, forMs: 1000 };
  const catalog: EffectPorts['catalog'] = () => ({
    ...rig.core.catalog(),
    tool(name) {
      const tool = rig.core.catalog().tool(name);
      return tool && { ...tool, probe: { ...probe, read: tool } };
    },
  });
  const body = { kind: 'json', value: { state: 'done' } } as const;
  const result = { kind: 'http', status: 200, headers: {}, body, truncated: false } as const;
  const send: EffectPorts['upstream']['send'] = async () => {
    const settledBy = { by: 'resolve', keyId: 'k', user: 'ola', forced: true, comment: null, evidence: null } as const;
    const actor = { type: 'user', id: 'ola' } as const;
    const { fence } = life.lease;
    const outcome = { kind: 'not_happened' } as const;
    await store.resolve({ workspace: WS, effectId: lost.id, outcome, settledBy, actor, fence, force: true });
    return { kind: 'failed', evidence: seen, answer: null, result };
  };
  const probed = await probeByItself({ ...rig.core, catalog, upstream: { ...rig.core.upstream, send } }, lost, life);
  expect(probed).toMatchObject({ kind: 'problem', problem: { code: 'already_resolved' } });
  expect((await store.effectLedger(WS, lost.id)).at(-1)).toMatchObject({
    kind: 'effect.probed',
    data: { said: 'happened', attempt: 1 },
  });
});
