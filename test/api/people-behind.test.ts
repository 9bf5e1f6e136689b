import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KeyRecord } from '../../src/effects/model/key.ts';
import type { KeyKind } from '../../src/effects/model/principal.ts';
import { inOneHand } from '../../src/effects/run/key-makers.ts';
import { keyRecord, WORKSPACE } from '../contract/requests.ts';
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

describe('one person who may hold both the key that asks and the key that votes', () => {
  const MARIA = { path: '/v1/beta/users/maria/keys', body: { name: 'of maria', kind: 'account', workspace: 'demo' } };
  const NORA = { ...MARIA, path: '/v1/beta/users/nora/keys' };
  const TOM = {
    path: '/v1/beta/users/tom/keys',
    body: { name: 'of tom', kind: 'agent', workspace: 'demo', agent_id: 'bot' },
  };
  /** A key that an administrator makes by the API. */
  async function make(by: string, { path, body }: { readonly path: string; readonly body: object }): Promise<string> {
    const made = await rig.send('POST', path, { key: by, body });
    expect(made.status).toBe(201);
    return String(made.json['key']);
  }
  const administrative = (user: string) => ({
    path: `/v1/beta/users/${user}/keys`,
    body: { name: 'of an administrator', kind: 'administrative' },
  });
  async function idOf(key: string): Promise<string> {
    const principal = await rig.ports.authenticate(key);
    if ('failure' in principal) throw new Error(principal.failure);
    return principal.keyId;
  }
  async function end(key: string): Promise<void> {
    const revoked = await rig.ports.store.endKey(await idOf(key), { kind: 'revoked' }, GATEWAY);
    const { store } = rig.ports;
    while (store.now() <= (revoked?.revokedAt ?? 0)) await new Promise((resolve) => setTimeout(resolve, 2));
  }
  async function rotate(by: string, key: string): Promise<string> {
    const rotated = await rig.send('POST', `/v1/beta/keys/${await idOf(key)}/rotate`, { key: by, body: {} });
    expect(rotated.status).toBe(201);
    return String(rotated.json['key']);
  }
  /** What a vote on a request that a key makes is answered. */
  async function voted(asking: string, voting: string, more: Record<string, unknown> = {}) {
    const asked = await ask(asking, more);
    expect(asked.json['decision']).toBe('pending_approval');
    const { id } = asked.json['approval'] as unknown as { id: string };
    const decide = async (key: string) =>
      (await rig.send('POST', `${WS}/approvals/${id}/approve`, { key, body: {} })).json;
    return { answer: await decide(voting), decide };
  }
  const REFUSED = { status: 403, code: 'own_request' };

  it('who rotated the key that asks has made it', async () => {
    const rotated = await rotate(await keyOf('administrative', 'maria', null), await keyOf('agent', 'olga', 'bot'));
    expect((await voted(rotated, rig.keys.approver)).answer).toMatchObject(REFUSED);
  });

  it('who made a key that the key which asks was made, or rotated, with has made that too', async () => {
    const ofOlga = await make(await keyOf('administrative', 'maria', null), administrative('olga'));
    expect((await voted(await make(ofOlga, TOM), rig.keys.approver)).answer).toMatchObject(REFUSED);
    // Olga seems to rotate her own.
    const rotated = await rotate(ofOlga, await keyOf('agent', 'olga', 'bot'));
    expect((await voted(rotated, rig.keys.approver)).answer).toMatchObject(REFUSED);
  });

  it('a key that the requester, or the owner of the agent, made for the approver does not vote', async () => {
    const ofZoe = await keyOf('administrative', 'zoe', null);
    const forMaria = await make(ofZoe, MARIA);
    const own = await voted(await keyOf('account', 'zoe', null), forMaria, { agent_id: 'other-bot' });
    expect(own.answer).toMatchObject({ ...REFUSED, detail: expect.stringContaining('made by zoe') });
    const chained = await make(await make(ofZoe, administrative('yan')), MARIA);
    expect(await own.decide(chained)).toMatchObject(REFUSED);
    // The key that the command line made for the same person votes.
    expect(await own.decide(rig.keys.approver)).toMatchObject({ status: 'used' });
    const byOwner = await make(await keyOf('administrative', 'olga', null), MARIA);
    expect((await voted(await keyOf('agent', null, 'bot'), byOwner)).answer).toMatchObject(REFUSED);
  });

  it('an administrator makes the keys of agents and all that an approver has, who decides', async () => {
    const ofAda = await keyOf('administrative', 'ada', null);
    const [asking, voting] = [await make(ofAda, TOM), await make(ofAda, NORA)];
    expect((await voted(asking, voting)).answer).toMatchObject({ status: 'used' });
    const rotated = await voted(await rotate(ofAda, asking), await rotate(ofAda, voting));
    expect(rotated.answer).toMatchObject({ status: 'used' });
    // Keys that let nobody decide here are none to decide with.
    for (const [kind, agent] of [
      ['administrative', null],
      ['agent', 'bot'],
    ] as const)
      await keyOf(kind, 'nora', agent);
    expect((await voted(asking, voting)).answer).toMatchObject({ status: 'used' });
  });

  it('where an approver has a key of the command line, one that the maker of the key which asks made does not vote', async () => {
    const ofAda = await keyOf('administrative', 'ada', null);
    const [asking, voting] = [await make(ofAda, TOM), await make(ofAda, MARIA)];
    const both = await voted(asking, voting);
    expect(both.answer).toMatchObject({ ...REFUSED, detail: expect.stringContaining('that the command line made') });
    expect(await both.decide(rig.keys.approver)).toMatchObject({ status: 'used' });
    // Who asks with another's key is not known to hold both.
    expect((await voted(await keyOf('agent', 'tom', 'bot'), voting)).answer).toMatchObject({ status: 'used' });
    // It counts until it has ended, and for what was asked before.
    const own = await keyOf('account', 'nora', null);
    const ofNora = await make(ofAda, NORA);
    const before = await voted(asking, ofNora);
    expect(before.answer).toMatchObject(REFUSED);
    await end(own);
    expect(await before.decide(ofNora)).toMatchObject(REFUSED);
    expect((await voted(asking, ofNora)).answer).toMatchObject({ status: 'used' });
  });
});

const ASKED = 1_800_000_000_000;

it.each<[which: string, of: Partial<KeyRecord>, counts: boolean]>([
  ['in force', {}, true],
  ['revoked since', { revokedAt: ASKED + 1 }, true],
  ['revoked by then', { revokedAt: ASKED }, false],
  ['expired since', { expiresAt: ASKED + 1 }, true],
  ['expired by then', { expiresAt: ASKED }, false],
  ['of another workspace', { workspace: 'other' }, false],
  ['of an agent', { agentId: 'bot' }, false],
  ['that somebody made', { madeBy: 'ada' }, false],
  ['that decides nothing', { kind: 'agent' }, false],
  ['of an agent’s kind that decides', { kind: 'agent', scopes: ['approvals:decide'] }, true],
])('where one person made both keys, a key %s is another one of the approver: %j: %s', async (_, of, counts) => {
  const requester = { agentId: 'bot', agentOwner: null, user: 'tom', keyId: 'key_1', keyMadeBy: 'ada' };
  const store = { keys: async (user: string | null) => (user === 'maria' ? [keyRecord(of)] : []) };
  const asked = { requester, workspace: WORKSPACE, createdAt: ASKED };
  const refusal = await inOneHand(store, asked, { user: 'maria', madeBy: 'ada' });
  expect(refusal !== null).toBe(counts);
});

it('only who made an administrative key of a maker is behind what that maker made', async () => {
  const requester = { agentId: 'bot', agentOwner: null, user: 'tom', keyId: 'key_1', keyMadeBy: 'ada' };
  const asked = { requester, workspace: WORKSPACE, createdAt: ASKED };
  const refusal = (kind: KeyKind, revokedAt: number | null = null) => {
    const ofAda = [keyRecord({ kind, user: 'ada', madeBy: 'maria', revokedAt, expiresAt: revokedAt })];
    const store = { keys: async (user: string | null) => (user === 'ada' ? ofAda : []) };
    return inOneHand(store, asked, { user: 'maria', madeBy: null });
  };
  // With an account key nobody makes keys.
  expect(await refusal('account')).toBeNull();
  expect(await refusal('administrative')).toMatch(/^You made the key that asked, or one that it was made with/);
  // What was made with a key stays when that key is revoked.
  expect(await refusal('administrative', 1)).toMatch(/^You made the key that asked/);
});

it.each([
  [100, null],
  [101, expect.stringMatching(/^Too many people have made the keys/)],
])('behind a key %d makers are followed, and with more nobody decides', async (makers, expected) => {
  const requester = { agentId: 'bot', agentOwner: null, user: 'tom', keyId: 'key_1', keyMadeBy: 'maker 1' };
  const store = {
    keys: async (user: string | null) => {
      const next = Number(user?.split(' ')[1]) + 1;
      return next > makers ? [] : [keyRecord({ kind: 'administrative', user, madeBy: `maker ${next}` })];
    },
  };
  const asked = { requester, workspace: WORKSPACE, createdAt: ASKED };
  expect(await inOneHand(store, asked, { user: 'maria', madeBy: null })).toEqual(expected);
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
