import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KeyKind } from '../../src/effects/model/principal.ts';
import { refund, type Rig, startRig } from './rig.ts';

const WS = '/v1/workspaces/demo';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

const GATEWAY = { type: 'gateway', id: 'test' } as const;

/** A key as the command line makes them, which may belong to nobody. */
async function keyOf(kind: KeyKind, user: string | null, agentId: string | null): Promise<string> {
  const made = rig.ports.keys.create({
    user,
    madeBy: null,
    name: 'test',
    kind,
    profile: null,
    workspace: kind === 'administrative' ? null : 'demo',
    agentId,
    scopes: null,
    allowedTools: null,
    expiresInMs: null,
  });
  if (made.kind === 'refused') throw new Error(JSON.stringify(made.faults));
  await rig.ports.store.putKey(made.record, GATEWAY);
  return made.key;
}

const waiting = async (): Promise<unknown> =>
  (await rig.send('GET', `${WS}/approvals`, { key: rig.keys.approver })).json['approvals'];

let payment = 0;
const large = (more: Record<string, unknown> = {}) => {
  payment += 1;
  return refund({ params: { payment_id: `pay_behind_${payment}`, amount: 60_000, currency: 'EUR' }, ...more });
};

const ask = (key: string, more: Record<string, unknown> = {}) =>
  rig.send('POST', `${WS}/effects`, { key, body: large(more) });

describe('whose an agent is', () => {
  it('an account key names its own user as the owner, and nobody else; an administrative key names anybody', async () => {
    const register = (body: Record<string, unknown>, key = rig.keys.account) =>
      rig.send('POST', `${WS}/agents`, { key, body });
    const other = await register({ id: 'of-olga', owner: 'olga' });
    expect([other.status, other.json['code']]).toEqual([403, 'wrong_key_kind']);
    const own = await register({ id: 'of-ops', owner: 'ops' });
    expect(own.status).toBe(201);
    expect(own.json).toMatchObject({ owner: 'ops', registered_by: 'ops' });
    const given = await register({ id: 'given', owner: 'olga' }, await keyOf('administrative', 'maria', null));
    expect(given.json).toMatchObject({ owner: 'olga', registered_by: 'maria' });
    const nobodys = await register({ id: 'of-nobody' }, await keyOf('account', null, null));
    expect([nobodys.status, nobodys.json['code']]).toEqual([403, 'wrong_key_kind']);
  });

  it('who registered an agent decides on none of its requests, whoever owns it', async () => {
    const administrative = await keyOf('administrative', 'maria', null);
    const body = { id: 'by-maria', owner: 'olga', team: 'support' };
    expect((await rig.send('POST', `${WS}/agents`, { key: administrative, body })).status).toBe(201);
    const asked = await ask(rig.keys.account, { agent_id: 'by-maria' });
    expect(asked.json['decision']).toBe('pending_approval');
    const { id } = asked.json['approval'] as unknown as { id: string };
    const vote = await rig.send('POST', `${WS}/approvals/${id}/approve`, { key: rig.keys.approver, body: {} });
    expect([vote.status, vote.json['code']]).toEqual([403, 'own_request']);
    expect((await rig.ports.store.approval('demo', id))?.status).toBe('pending');
  });
});

describe('who decides was there before the request', () => {
  it('with the key that decides: one that was made since counts for nothing, whosever it is', async () => {
    const asked = await ask(rig.keys.agent);
    const { id } = asked.json['approval'] as unknown as { id: string };
    const decide = (key: string) => rig.send('POST', `${WS}/approvals/${id}/approve`, { key, body: {} });
    // Store time is in whole ms: the key has to be of a later one.
    const { store } = rig.ports;
    for (const asked = store.now(); store.now() === asked; ) await new Promise((resolve) => setTimeout(resolve, 2));
    const since = await decide(await keyOf('account', 'maria', null));
    expect([since.status, since.json['code']]).toEqual([403, 'own_request']);
    expect(since.json['detail']).toContain('This key was made after the request');
    expect((await decide(rig.keys.approver)).json).toMatchObject({ status: 'used' });
  });
});

describe('a request of nobody', () => {
  it('does not wait for approval: whoever made it could decide it', async () => {
    const before = await waiting();
    const account = await keyOf('account', null, null);
    for (const asked of [
      await ask(account, { agent_id: 'bot' }),
      await ask(await keyOf('agent', null, 'other-bot'), { agent_id: 'other-bot' }),
    ]) {
      expect(asked.status).toBe(403);
      expect(asked.json).toMatchObject({
        decision: 'denied_policy',
        did_it_happen: 'no',
        reason: { code: 'key_without_user', rule: expect.stringContaining('/') },
      });
    }
    expect(await waiting()).toEqual(before);
    // What needs no approval runs.
    const small = await rig.send('POST', `${WS}/effects`, { key: account, body: refund({ agent_id: 'bot' }) });
    expect(small.json['decision']).toBe('committed');
  });

  it('waits where the agent has an owner and asks with its own key, or the key has a user', async () => {
    const owned = await ask(await keyOf('agent', null, 'bot'));
    expect(owned.json['decision']).toBe('pending_approval');
    const named = await ask(await keyOf('agent', 'tom', 'other-bot'), { agent_id: 'other-bot' });
    expect(named.json['decision']).toBe('pending_approval');
  });
});
