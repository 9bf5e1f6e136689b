import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { AllowanceRecord } from '../../src/effects/model/allowance.ts';
import type { Delivery } from '../../src/effects/model/notification.ts';
import type { Passkey } from '../../src/effects/model/passkey.ts';
import { ALLOWANCE } from '../effects/records.ts';
import { type Rig, refund, startRig } from './rig.ts';

const WS = '/v1/workspaces/demo';

/** What a key of the profile `mcp_readonly` may. */
const LOOKS = [
  'tools:read',
  'brain:read',
  'policy:simulate',
  'traces:read',
  'approvals:read',
  'observability:read',
  'governance:read',
];

let rig: Rig;
beforeAll(async () => {
  rig = await startRig({}, { receivers: () => [{ id: 'ops-id' }] });
});
afterAll(() => rig.close());

const list = (value: unknown) => value as { readonly id: string; readonly [name: string]: unknown }[];

describe('claims', () => {
  it('are taken, seen by whom they concern, renewed and released', async () => {
    const body = { target: 'payment:pay_7', ttl_s: 60 };
    const made = await rig.send('POST', `${WS}/claims`, { key: rig.keys.agent, body });
    expect(made.status).toBe(201);
    expect(made.json).toMatchObject({ target: 'payment:pay_7', agent_id: 'bot' });
    const id = String(made.json['id']);
    expect(id).toMatch(/^clm_[0-9a-z]{26}$/);
    const held = await rig.send('POST', `${WS}/claims`, { key: rig.keys.otherAgent, body });
    expect(held.json).toMatchObject({ status: 409, code: 'claim_held', next: 'wait', target: 'payment:pay_7' });
    expect(held.text).not.toContain('"bot"');
    expect(list((await rig.send('GET', `${WS}/claims`, { key: rig.keys.otherAgent })).json['claims'])).toEqual([]);
    expect(list((await rig.send('GET', `${WS}/claims`)).json['claims']).map((claim) => claim.id)).toContain(id);
    const path = `${WS}/claims/${id}`;
    expect((await rig.send('POST', `${path}/renew`, { key: rig.keys.otherAgent })).status).toBe(404);
    const renewed = await rig.send('POST', `${path}/renew`, { key: rig.keys.agent, body: { ttl_s: 600 } });
    expect(Date.parse(String(renewed.json['expires_at']))).toBeGreaterThan(Date.parse(String(made.json['expires_at'])));
    expect((await rig.send('DELETE', path, { key: rig.keys.otherAgent })).status).toBe(404);
    expect((await rig.send('DELETE', path, { key: rig.keys.agent })).status).toBe(200);
    expect((await rig.send('DELETE', path, { key: rig.keys.agent })).status).toBe(404);
  });

  it.each([
    ['a target of no tool', { target: 'moon:1', ttl_s: 60 }, '/target'],
    ['a tool that policy leaves to nobody', { target: 'service:api', ttl_s: 60 }, '/target'],
    ['more than an hour', { target: 'payment:pay_1', ttl_s: 3601 }, '/ttl_s'],
    ['no time', { target: 'payment:pay_1', ttl_s: 0 }, '/ttl_s'],
    ['a fraction', { target: 'payment:pay_1', ttl_s: 1.5 }, '/ttl_s'],
    ['another agent', { target: 'payment:pay_1', ttl_s: 60, agent_id: 'other-bot' }, '/agent_id'],
  ])('refuses %s', async (_what, body, path) => {
    const answer = await rig.send('POST', `${WS}/claims`, { key: rig.keys.agent, body });
    expect(answer.status).toBe(400);
    expect(list(answer.json['errors'])[0]?.['path']).toBe(path);
  });

  it('are taken on what a callable tool, or a rule for it, can name, and on nothing that only a request would', async () => {
    const claim = async (target: string): Promise<number> =>
      (await rig.send('POST', `${WS}/claims`, { key: rig.keys.agent, body: { target, ttl_s: 1 } })).status;
    // notes.add has no target of its own: its name, and what its rule claims.
    for (const target of ['notes.add', 'note:1']) expect([target, await claim(target)]).toEqual([target, 201]);
    for (const target of ['anything', 'note:', 'service:api', 'deploy.start'])
      expect([target, await claim(target)]).toEqual([target, 400]);
  });

  it('are on what values of a template can be: those before the last are encoded', async () => {
    const claim = async (target: string): Promise<number> =>
      (await rig.send('POST', `${WS}/claims`, { key: rig.keys.agent, body: { target, ttl_s: 1 } })).status;
    for (const target of ['shelf:a/box:b', 'shelf:a%2Fb/box:c/d e'])
      expect([target, await claim(target)]).toEqual([target, 201]);
    for (const target of ['shelf:a b/box:c', 'shelf:a/b/box:c', 'shelf:é/box:c', 'shelf:/box:c', 'shelf:a/box:'])
      expect([target, await claim(target)]).toEqual([target, 400]);
  });

  it('are for tools that the key may call', async () => {
    // Its rules permit the agent more: the key alone is held to one tool, which they refuse to everybody.
    for (const target of ['notes.add', 'note:1', 'payment:pay_9', 'service:api']) {
      const body = { target, ttl_s: 1 };
      const refused = await rig.send('POST', `${WS}/claims`, { key: rig.keys.restricted, body });
      expect([target, refused.status]).toEqual([target, 400]);
    }
    const body = { pool: 'deploy-slot', units: 1, ttl_s: 1 };
    const reserved = await rig.send('POST', `${WS}/reservations`, { key: rig.keys.restricted, body });
    expect([reserved.status, list(reserved.json['errors'])[0]?.['path']]).toEqual([400, '/pool']);
  });

  it('tell who comes later how long to wait, and people who is there', async () => {
    const body = { target: 'payment:pay_wait', ttl_s: 300 };
    const made = await rig.send('POST', `${WS}/claims`, { key: rig.keys.agent, body });
    const { created_at: from, expires_at: to } = made.json;
    expect(Date.parse(String(to)) - Date.parse(String(from))).toBe(300_000);
    const held = await rig.send('POST', `${WS}/claims`, { body: { ...body, agent_id: 'other-bot' } });
    expect(held.json).toMatchObject({ code: 'claim_held', claim: { id: made.json['id'], agent_id: 'bot' } });
    const waits = Number(held.headers['retry-after']);
    expect(waits).toBeGreaterThan(240);
    expect(waits).toBeLessThanOrEqual(300);
    // Without a time it is renewed for five minutes, from now.
    const renewed = await rig.send('POST', `${WS}/claims/${String(made.json['id'])}/renew`, { key: rig.keys.agent });
    const left = Date.parse(String(renewed.json['expires_at'])) - rig.ports.store.now();
    expect(left).toBeGreaterThan(240_000);
    expect(left).toBeLessThanOrEqual(300_000);
    await rig.send('DELETE', `${WS}/claims/${String(made.json['id'])}`, { key: rig.keys.agent });
    expect((await rig.send('POST', `${WS}/claims`, { key: rig.keys.otherAgent, body })).status).toBe(201);
    const soon = { target: 'payment:pay_soon', ttl_s: 1 };
    await rig.send('POST', `${WS}/claims`, { key: rig.keys.agent, body: soon });
    const shortly = await rig.send('POST', `${WS}/claims`, { key: rig.keys.otherAgent, body: soon });
    expect(shortly.headers['retry-after']).toBe('1');
  });

  it('are renewed for as long as is asked, and say until when calls that run hold them beyond their time', async () => {
    const body = { target: 'payment:pay_long', ttl_s: 60 };
    const { id } = (await rig.send('POST', `${WS}/claims`, { key: rig.keys.agent, body })).json;
    const path = `${WS}/claims/${String(id)}`;
    const renewed = await rig.send('POST', `${path}/renew`, { key: rig.keys.agent, body: { ttl_s: 1_800 } });
    const left = Date.parse(String(renewed.json['expires_at'])) - rig.ports.store.now();
    expect(left).toBeGreaterThan(1_740_000);
    expect(left).toBeLessThanOrEqual(1_800_000);
    const [claim] = (await rig.ports.store.claims('demo')).filter((one) => one.id === id);
    if (claim === undefined) throw new Error('the claim is gone');
    const shown = async (extendedUntil: number): Promise<unknown> => {
      const claims = vi.spyOn(rig.ports.store, 'claims').mockResolvedValue([{ ...claim, extendedUntil }]);
      const { json } = await rig.send('GET', `${WS}/claims`);
      claims.mockRestore();
      return list(json['claims'])[0]?.['extended_until'];
    };
    const { expiresAt } = claim;
    expect([await shown(expiresAt - 1), await shown(expiresAt)]).toEqual([null, null]);
    expect(await shown(expiresAt + 1_000)).toBe(new Date(expiresAt + 1_000).toISOString());
    await rig.send('DELETE', path);
  });

  it('beyond as many as an agent may hold say of whom they are too many, and how many may be', async () => {
    const claim = (n: number) =>
      rig.send('POST', `${WS}/claims`, { body: { target: `payment:pay_c${n}`, ttl_s: 60, agent_id: 'other-bot' } });
    const taken: string[] = [];
    let answer = await claim(0);
    for (; answer.status === 201; answer = await claim(taken.length)) taken.push(String(answer.json['id']));
    expect(answer.json).toMatchObject({ status: 409, code: 'too_many_claims', of: 'agent', limit: 20, next: 'wait' });
    for (const id of taken) expect((await rig.send('DELETE', `${WS}/claims/${id}`)).status).toBe(200);
  });

  it('asks an account key which agent it is for', async () => {
    const body = { target: 'payment:pay_8', ttl_s: 60 };
    expect((await rig.send('POST', `${WS}/claims`, { body })).status).toBe(400);
    expect((await rig.send('POST', `${WS}/claims`, { body: { ...body, agent_id: 'nobody' } })).status).toBe(400);
    // One that is disabled holds nothing that others would wait for.
    expect((await rig.send('POST', `${WS}/claims`, { body: { ...body, agent_id: 'retired' } })).status).toBe(400);
    expect((await rig.send('POST', `${WS}/claims`, { body: { ...body, agent_id: 'bot' } })).status).toBe(201);
  });
});

describe('reservations', () => {
  it('are listed with who holds what of which pool, and until when', async () => {
    const body = { pool: 'deploy-slot', units: 1, ttl_s: 60 };
    const made = await rig.send('POST', `${WS}/reservations`, { key: rig.keys.agent, body });
    const { id, expires_at } = made.json;
    const { json } = await rig.send('GET', `${WS}/reservations`, { key: rig.keys.account });
    expect(list(json['reservations'])).toMatchObject([
      { id, workspace: 'demo', pool: 'deploy-slot', units: 1, agent_id: 'bot', expires_at },
    ]);
    await rig.send('DELETE', `${WS}/reservations/${String(id)}`, { key: rig.keys.agent });
  });

  it('set units aside until the pool is full', async () => {
    const body = { pool: 'deploy-slot', units: 2, ttl_s: 60 };
    const made = await rig.send('POST', `${WS}/reservations`, { key: rig.keys.agent, body });
    expect([made.status, made.json['units']]).toEqual([201, 2]);
    const { created_at: from, expires_at: to } = made.json;
    expect(Date.parse(String(to)) - Date.parse(String(from))).toBe(60_000);
    const full = await rig.send('POST', `${WS}/reservations`, { key: rig.keys.otherAgent, body });
    expect(full.json).toMatchObject({ status: 423, code: 'pool_full', pool: 'deploy-slot', free: 0, capacity: 2 });
    expect(full.json['detail']).toBe('The pool deploy-slot has 0 free of 2; 2 were asked for.');
    expect([full.json['retry_after_ms'], full.headers['retry-after']]).toEqual([1_000, '1']);
    const path = `${WS}/reservations/${String(made.json['id'])}`;
    const seenBy = async (key: string) =>
      list((await rig.send('GET', `${WS}/reservations`, { key })).json['reservations']).map(({ id }) => id);
    expect(await seenBy(rig.keys.agent)).toEqual([made.json['id']]);
    expect(await seenBy(rig.keys.account)).toEqual([made.json['id']]);
    // The key of another agent sees its own alone.
    expect(await seenBy(rig.keys.otherAgent)).toEqual([]);
    expect((await rig.send('DELETE', path, { key: rig.keys.otherAgent })).status).toBe(404);
    expect((await rig.send('DELETE', path, { key: rig.keys.agent })).status).toBe(200);
    const again = await rig.send('POST', `${WS}/reservations`, { key: rig.keys.otherAgent, body });
    expect(again.status).toBe(201);
    // A call that finds none free is told to come back soon.
    const params = { payment_id: 'pay_1', amount: 100, currency: 'EUR', reason: 'slot' };
    const run = await rig.send('POST', `${WS}/effects`, {
      key: rig.keys.agent,
      body: refund({ agent_id: 'bot', params }),
    });
    expect(run.json).toMatchObject({ decision: 'denied_reservation', reason: { code: 'pool_exhausted' } });
    expect([run.status, run.json['next'], run.json['retry_after_ms']]).toEqual([423, 'wait', 1_000]);
  });

  it('and claims are for agents whose rules could permit them a call that needs them', async () => {
    expect((await rig.send('POST', `${WS}/agents`, { body: { id: 'barred' } })).status).toBe(201);
    const ask = (path: string, body: Record<string, unknown>) =>
      rig.send('POST', `${WS}/${path}`, { body: { ...body, agent_id: 'barred', ttl_s: 60 } });
    const pool = await ask('reservations', { pool: 'deploy-slot', units: 1 });
    expect([pool.status, list(pool.json['errors'])[0]?.['path']]).toEqual([400, '/pool']);
    const claim = await ask('claims', { target: 'payment:pay_barred' });
    expect([claim.status, list(claim.json['errors'])[0]?.['path']]).toEqual([400, '/target']);
  });

  it('beyond as many as a key may hold say of whom they are too many, and how many may be', async () => {
    const { store } = rig.ports;
    const keyId = `key_${/^svc_[a-z]+_(.{12})/.exec(rig.keys.agent)?.[1] ?? ''}`;
    const ids = Array.from({ length: 100 }, (_, n) => `rsv_many_${n}`);
    const of = { workspace: 'demo', pool: 'another', capacity: 100, units: 1, agentId: 'bot', keyId, ttlMs: 60_000 };
    for (const id of ids) await store.makeReservation({ ...of, id, actor: { type: 'user', id: 'tom' } });
    const body = { pool: 'deploy-slot', units: 1, ttl_s: 60 };
    const { json } = await rig.send('POST', `${WS}/reservations`, { key: rig.keys.agent, body });
    expect(json).toMatchObject({ status: 409, code: 'too_many_reservations', of: 'key', limit: 100, next: 'wait' });
    for (const id of ids) expect((await rig.send('DELETE', `${WS}/reservations/${id}`)).status).toBe(200);
  });

  it('says which pool was probably meant', async () => {
    const body = { pool: 'deploy-slots', units: 1, ttl_s: 60 };
    const answer = await rig.send('POST', `${WS}/reservations`, { key: rig.keys.agent, body });
    expect(list(answer.json['errors'])[0]?.['message']).toContain("did you mean 'deploy-slot'");
  });
});

describe('pauses', () => {
  it.each([
    [{ tool: 'payment.*' }, "No tool that fits 'payment.*'"],
    [{ agent: 'bott' }, "No agent 'bott' of this workspace"],
    [{ upstream: 'payment' }, "No tool of an upstream 'payment'"],
    [{ key: 'key_000000000000' }, "No key 'key_000000000000' of this workspace"],
    [{ tool: 'payments.*' }, null],
    [{ tool: 'payments.(*)' }, null],
    [{ agent: 'retired' }, null],
    [{ upstream: 'payments' }, null],
    [{ workspace: true }, null],
  ])('of %j is set, with a warning where nothing known has the name', async (scope, about) => {
    const set = await rig.send('POST', `${WS}/pauses`, { body: { scope, reason: 'look' } });
    expect(set.status).toBe(201);
    if (about === null) expect(set.json).not.toHaveProperty('warning');
    else expect(set.json['warning']).toBe(`${about} is known, so this stops nothing now. Look for a misspelt name.`);
    const { json } = await rig.send('GET', `${WS}/pauses`);
    expect(list(json['pauses'])).toContainEqual(expect.objectContaining({ id: set.json['id'], scope }));
    expect((await rig.send('DELETE', `${WS}/pauses/${String(set.json['id'])}`)).status).toBe(200);
  });

  it('are two hundred at most, but for administrative keys', async () => {
    const actor = { type: 'user', id: 'tom' } as const;
    const by = { keyId: 'key_1', keyKind: 'account', user: 'tom' } as const;
    const ids = Array.from({ length: 200 }, (_, n) => `pau_many_${n}`);
    for (const id of ids) {
      const scope = { kind: 'tool', glob: `${id}.*` } as const;
      await rig.ports.store.setPause({ id, workspace: 'demo', scope, reason: 'many', until: null, by, actor });
    }
    const body = { scope: { agent: 'retired' }, reason: 'one more' };
    const { status, json } = await rig.send('POST', `${WS}/pauses`, { body });
    expect([status, json['code']]).toEqual([409, 'conflict']);
    expect(json['detail']).toMatch(/^200 pauses of this workspace are in force, as many as may be\. Lift some/);
    const whole = await rig.send('POST', `${WS}/pauses`, { body: { ...body, scope: { workspace: true } } });
    const set = await rig.send('POST', `${WS}/pauses`, { key: rig.keys.admin, body });
    expect([whole.status, set.status]).toEqual([201, 201]);
    for (const id of [...ids, String(whole.json['id']), String(set.json['id'])])
      await rig.ports.store.liftPause('demo', id, 'administrative', actor);
  });

  it('of a key is set without a warning in its own workspace only', async () => {
    for (const [key, workspace, isWarned] of [
      [rig.keys.agent, 'demo', false],
      [rig.keys.agent, 'elsewhere', true],
    ] as const) {
      const id = `key_${/^svc_[a-z]+_(.{12})/.exec(key)?.[1] ?? ''}`;
      const path = `/v1/workspaces/${workspace}/pauses`;
      const set = await rig.send('POST', path, { key: rig.keys.admin, body: { scope: { key: id }, reason: 'look' } });
      expect([set.status, 'warning' in set.json]).toEqual([201, isWarned]);
      await rig.send('DELETE', `${path}/${String(set.json['id'])}`, { key: rig.keys.admin });
    }
  });

  it('stop calls until they are lifted; those of an administrative key by one only', async () => {
    const set = await rig.send('POST', `${WS}/pauses`, {
      key: rig.keys.admin,
      body: { scope: { agent: 'other-bot' }, reason: 'incident' },
    });
    expect(set.status).toBe(201);
    const run = await rig.send('POST', `${WS}/effects`, {
      key: rig.keys.otherAgent,
      body: refund({ agent_id: undefined }),
    });
    expect([run.status, run.json['decision']]).toEqual([423, 'denied_paused']);
    const path = `${WS}/pauses/${String(set.json['id'])}`;
    expect(list((await rig.send('GET', `${WS}/pauses`, { key: rig.keys.agent })).json['pauses'])).toEqual([]);
    expect(list((await rig.send('GET', `${WS}/pauses`, { key: rig.keys.otherAgent })).json['pauses'])).toHaveLength(1);
    expect((await rig.send('DELETE', path)).json['code']).toBe('wrong_key_kind');
    expect((await rig.send('DELETE', path, { key: rig.keys.admin })).status).toBe(200);
    expect((await rig.send('DELETE', path, { key: rig.keys.admin })).status).toBe(404);
  });

  it('of a key are shown to that key, and to no other key of an agent', async () => {
    const own = `key_${/^svc_[a-z]+_(.{12})/.exec(rig.keys.agent)?.[1] ?? ''}`;
    const set = await rig.send('POST', `${WS}/pauses`, { body: { scope: { key: own }, reason: 'look' } });
    expect(set.status).toBe(201);
    const seenBy = async (key: string) =>
      list((await rig.send('GET', `${WS}/pauses`, { key })).json['pauses']).map(({ id }) => id);
    expect(await seenBy(rig.keys.agent)).toEqual([set.json['id']]);
    expect(await seenBy(rig.keys.otherAgent)).toEqual([]);
    expect(await seenBy(rig.keys.runner)).toEqual([]);
    expect((await rig.send('DELETE', `${WS}/pauses/${String(set.json['id'])}`)).status).toBe(200);
  });

  it('until a time end then, and are listed with it', async () => {
    const until = new Date(Math.ceil(rig.ports.store.now()) + 60_000).toISOString();
    const body = { scope: { agent: 'other-bot' }, reason: 'for a minute', until };
    const set = await rig.send('POST', `${WS}/pauses`, { key: rig.keys.approver, body });
    expect(set.json).toMatchObject({ until, by: { user: 'maria', key_kind: 'account' } });
    const { json } = await rig.send('GET', `${WS}/pauses`);
    expect(list(json['pauses'])).toContainEqual(set.json);
    const [pause] = (await rig.ports.store.pauses('demo')).pauses;
    expect(pause?.until).toBe(Date.parse(until));
    expect((await rig.send('DELETE', `${WS}/pauses/${String(set.json['id'])}`)).json).toEqual(set.json);
  });

  it.each([
    [{ scope: {}, reason: 'x' }],
    [{ scope: { agent: 'bot', tool: '**' }, reason: 'x' }],
    [{ scope: { workspace: false }, reason: 'x' }],
    [{ scope: { tool: 'a{b' }, reason: 'x' }],
    [{ scope: { workspace: true } }],
    [{ scope: { workspace: true }, reason: 'x', until: '2020-01-01T00:00:00Z' }],
    [{ scope: { workspace: true }, reason: 'x', until: 'tomorrow' }],
    [{ scope: { workspace: true }, reason: 'x'.repeat(501) }],
    [{ scope: { key: 'key_1' }, reason: 'x' }],
  ])('refuses %j', async (body) => {
    expect((await rig.send('POST', `${WS}/pauses`, { body })).status).toBe(400);
  });

  it('of a tool that is no pattern are refused at that place, in words', async () => {
    const { json } = await rig.send('POST', `${WS}/pauses`, { body: { scope: { tool: 'a{b' }, reason: 'x' } });
    expect(json['errors']).toEqual([{ path: '/scope/tool', message: expect.stringMatching(/^is no glob: ./) }]);
  });

  it('end in the future: until now is no pause any more', async () => {
    const now = Math.ceil(rig.ports.store.now()) + 1_000;
    const clock = vi.spyOn(rig.ports.store, 'now').mockReturnValue(now);
    const ask = (until: number) =>
      rig.send('POST', `${WS}/pauses`, {
        body: { scope: { agent: 'retired' }, reason: 'x', until: new Date(until).toISOString() },
      });
    const [over, open] = [await ask(now), await ask(now + 1)];
    clock.mockRestore();
    expect([over.status, list(over.json['errors'])[0]?.['path'], open.status]).toEqual([400, '/until', 201]);
    await rig.send('DELETE', `${WS}/pauses/${String(open.json['id'])}`);
  });

  it('are for no agent, and for an administrative key in workspaces that exist', async () => {
    const body = { scope: { workspace: true }, reason: 'x' };
    expect((await rig.send('POST', `${WS}/pauses`, { key: rig.keys.agent, body })).status).toBe(403);
    const nowhere = await rig.send('POST', '/v1/workspaces/nowhere/pauses', { key: rig.keys.admin, body });
    expect(nowhere.status).toBe(404);
  });
});

describe('approvals', () => {
  it('wait for a person who may, and run the action then', async () => {
    const run = await rig.send('POST', `${WS}/effects`, {
      body: refund({ params: { payment_id: 'pay_2', amount: 60_000, currency: 'EUR' } }),
    });
    expect([run.status, run.json['decision']]).toEqual([202, 'pending_approval']);
    const { id } = run.json['approval'] as unknown as { id: string };
    const path = `${WS}/approvals/${id}`;
    const effect = await rig.send('GET', `${WS}/effects/${String(run.json['effect_id'])}`);
    expect(effect.json['effect']).toMatchObject({ state: 'pending_approval', approval: { id, status: 'pending' } });
    const pending = await rig.send('GET', `${WS}/approvals?status=pending`);
    expect(list(pending.json['approvals']).map((approval) => approval.id)).toContain(id);
    expect((await rig.send('GET', path)).json).toMatchObject({ summary: 'Refund 60000', tool: 'payments.refund' });
    expect((await rig.send('GET', path, { key: rig.keys.otherAgent })).status).toBe(404);
    expect((await rig.send('GET', path, { key: rig.keys.agent })).status).toBe(200);
    expect((await rig.send('POST', `${path}/approve`, { key: rig.keys.agent })).json['code']).toBe('wrong_key_kind');
    expect((await rig.send('POST', `${path}/approve`)).status).toBe(403);
    const approved = await rig.send('POST', `${path}/approve`, { key: rig.keys.approver, body: { comment: 'fine' } });
    expect(approved.status).toBe(200);
    expect(approved.json['effect']).toMatchObject({ state: 'committed', decision: 'committed' });
    expect(approved.json['votes']).toEqual([expect.objectContaining({ user: 'maria', comment: 'fine' })]);
    expect((await rig.send('POST', `${path}/reject`, { key: rig.keys.approver })).json['code']).toBe('conflict');
    expect((await rig.send('POST', `${WS}/approvals/apr_none/approve`, { key: rig.keys.approver })).status).toBe(404);
  });
});

describe('what was allowed ahead', () => {
  const given: AllowanceRecord = {
    ...ALLOWANCE,
    rules: ['rig/refund-large'],
    times: 3,
    used: 1,
    givenAt: 1,
    expiresAt: Number.MAX_SAFE_INTEGER,
  };

  it.each<[string, string, Partial<AllowanceRecord>]>([
    ['lets calls in', 'open', {}],
    ['was given before the store was set back', 'over', { epoch: -1 }],
    ['is at its end', 'over', { expiresAt: 2 }],
    ['was used as often as it may be', 'used_up', { used: 3 }],
    ['was revoked', 'revoked', { ended: { why: 'revoked', at: 2, by: 'nora' } }],
    ['no gateway wrote', 'forged', { isForged: true }],
  ])('and %s is listed as %s', async (_, status, more) => {
    const { store } = rig.ports;
    const one = { ...given, expiresAt: store.now() + 60_000, epoch: store.health().epoch + (more.epoch ?? 0) };
    const allowances = vi
      .spyOn(store, 'allowances')
      .mockResolvedValue({ items: [{ ...one, ...more, epoch: one.epoch }], next: null });
    const { json } = await rig.send('GET', `${WS}/allowances`, { key: rig.keys.approver });
    allowances.mockRestore();
    expect(list(json['allowances'])).toMatchObject([{ id: 'alw_1', status, times: 3, given_by: 'maria' }]);
  });
});

describe('allowances', () => {
  const given: AllowanceRecord = {
    ...ALLOWANCE,
    id: 'alw_2',
    approvalId: 'apr_2',
    effectId: 'eff_2',
    rules: ['rig/refund-large'],
    varies: { currency: { kind: 'text', maxLength: 80 } },
    times: 3,
    used: 1,
    givenAt: Date.UTC(2026, 0, 1),
    expiresAt: Date.UTC(2026, 0, 2),
    ended: { why: 'revoked', at: Date.UTC(2026, 0, 1, 1), by: 'nora' },
  };
  const shown = {
    id: 'alw_2',
    workspace: 'demo',
    tool: 'payments.refund',
    target: 'payment:pay_1',
    status: 'revoked',
    given_by: 'maria',
    approval_id: 'apr_2',
    effect_id: 'eff_2',
    agent_id: 'bot',
    rules: ['rig/refund-large'],
    times: 3,
    used: 1,
    varies: { currency: { max_length: 80 } },
    given_at: '2026-01-01T00:00:00.000Z',
    expires_at: '2026-01-02T00:00:00.000Z',
    ended: { at: '2026-01-01T01:00:00.000Z', by: 'nora' },
  };

  it('are shown to the key of an agent as far as they are for its calls, and all of them to people', async () => {
    const read = vi.spyOn(rig.ports.store, 'allowances').mockResolvedValue({ items: [given], next: null });
    for (const key of [rig.keys.agent, rig.keys.otherAgent, rig.keys.approver]) {
      const { status, json } = await rig.send('GET', `${WS}/allowances`, { key });
      expect([status, list(json['allowances'])]).toEqual([200, [expect.objectContaining(shown)]]);
    }
    expect(read.mock.calls.map(([, { agentId }]) => agentId)).toEqual(['bot', 'other-bot', null]);
    read.mockResolvedValue({ items: [given], next: 'the-next' });
    const { json } = await rig.send('GET', `${WS}/allowances?limit=1`);
    expect([json['next_cursor'], read.mock.lastCall?.[1]]).toEqual([
      'the-next',
      { agentId: null, limit: 1, cursor: null },
    ]);
    read.mockRestore();
  });

  it('that are over already are as their revoker wants them: the answer is that of a revocation, with who ended it', async () => {
    const revoke = vi.spyOn(rig.ports.store, 'revokeAllowance').mockResolvedValue({ kind: 'over', allowance: given });
    const answer = await rig.send('DELETE', `${WS}/allowances/alw_2`, { key: rig.keys.approver });
    expect(answer).toMatchObject({ status: 200, json: shown });
    expect(revoke).toHaveBeenCalledWith(
      expect.objectContaining({ id: 'alw_2', by: 'maria', actor: { type: 'user', id: 'maria' } }),
    );
    revoke.mockRestore();
    const absent = await rig.send('DELETE', `${WS}/allowances/alw_none`, { key: rig.keys.approver });
    expect(absent.json).toMatchObject({ status: 404, code: 'not_found' });
  });
});

describe('a rejected call', () => {
  it('carries the approver’s reason wherever it is asked for', async () => {
    const body = refund({ params: { payment_id: 'pay_2', amount: 61_000, currency: 'EUR' } });
    const run = await rig.send('POST', `${WS}/effects`, { body });
    const { id } = run.json['approval'] as unknown as { id: string };
    const comment = 'not in May';
    await rig.send('POST', `${WS}/approvals/${id}/reject`, { key: rig.keys.approver, body: { comment } });
    const again = await rig.send('POST', `${WS}/effects`, { body, headers: { prefer: 'wait=1' } });
    expect(again.json['reason']).toHaveProperty(
      'message',
      expect.stringMatching(/The approver's reason: "not in May"$/),
    );
    const seen = await rig.send('GET', `${WS}/effects/${String(run.json['effect_id'])}`);
    expect(seen.json['effect']).toMatchObject({ state: 'rejected', reason: again.json['reason'] });
  });
});

describe('approvals and keys of agents', () => {
  it('an agent lists its own requests, and none of other agents', async () => {
    const run = await rig.send('POST', `${WS}/effects`, {
      body: refund({ params: { payment_id: 'pay_2', amount: 60_020, currency: 'EUR' } }),
    });
    const { id } = run.json['approval'] as unknown as { id: string };
    const seenBy = async (key: string) =>
      list((await rig.send('GET', `${WS}/approvals`, { key })).json['approvals']).map((approval) => approval.id);
    expect(await seenBy(rig.keys.agent)).toContain(id);
    expect(await seenBy(rig.keys.otherAgent)).toEqual([]);
  });

  it('no key that acts as an agent decides, whatever its scopes and whosever it is', async () => {
    const run = await rig.send('POST', `${WS}/effects`, {
      body: refund({ params: { payment_id: 'pay_2', amount: 60_010, currency: 'EUR' } }),
    });
    const { id } = run.json['approval'] as unknown as { id: string };
    const principal = {
      kind: 'profile',
      keyId: 'key_000000000000',
      user: 'maria',
      madeBy: null,
      keyCreatedAt: 0,
      readOnly: false,
      allowedTools: null,
      profile: 'deciders',
      workspace: 'demo',
      scopes: ['approvals:decide'],
    } as const;
    const decide = (agentId: string | null) =>
      rig.ports.decideApproval({
        principal: { ...principal, agentId },
        workspace: 'demo',
        approvalId: id,
        verdict: 'approve',
        comment: null,
        changes: null,
        digest: null,
      });
    expect(await decide('other-bot')).toMatchObject({ kind: 'problem', problem: { code: 'wrong_key_kind' } });
    expect(await decide(null)).toMatchObject({ kind: 'decided' });
  });
});

describe('budgets', () => {
  it('show figures to people and to the agent whose they are, a level to those who share', async () => {
    await rig.send('POST', `${WS}/effects`, { body: refund() });
    const all = list((await rig.send('GET', `${WS}/budgets`)).json['budgets']);
    expect(all.map((row) => row['budget'])).toEqual(expect.arrayContaining(['rig/agent-day', 'rig/team-day']));
    const mine = list((await rig.send('GET', `${WS}/budgets`, { key: rig.keys.agent })).json['budgets']);
    expect(mine.find((row) => row['budget'] === 'rig/agent-day')).toMatchObject({ limit: 100_000 });
    expect(mine.find((row) => row['budget'] === 'rig/team-day')).toMatchObject({ level: 'ok' });
    expect(mine.find((row) => row['budget'] === 'rig/team-day')).not.toHaveProperty('spent');
    const others = list((await rig.send('GET', `${WS}/budgets`, { key: rig.keys.otherAgent })).json['budgets']);
    expect(others.map((row) => row['budget'])).toEqual(['rig/team-day']);
  });

  it('are low from the percent on that policy says, in the list too', async () => {
    const params = { payment_id: 'pay_1', amount: 2_000, currency: 'EUR' };
    await rig.send('POST', `${WS}/effects`, { body: refund({ params }) });
    const { policies } = rig.ports;
    const levels = async (warnAt: number | null): Promise<unknown> => {
      const { set, ...others } = policies();
      const rules = set.rules.map((rule) => ({
        ...rule,
        obligations: rule.obligations.map((one) =>
          one.kind === 'budget' ? { ...one, budget: { ...one.budget, warnAt } } : one,
        ),
      }));
      const spy = vi.spyOn(rig.ports, 'policies').mockReturnValue({ ...others, set: { ...set, rules } });
      const { json } = await rig.send('GET', `${WS}/budgets`);
      spy.mockRestore();
      return list(json['budgets']).find((row) => row['budget'] === 'rig/agent-day')?.['level'];
    };
    expect([await levels(null), await levels(1)]).toEqual(['ok', 'low']);
  });

  it('stand under the limit that policy has now, with bucket and window for people; one that no rule names any more is hidden from agents', async () => {
    await rig.send('POST', `${WS}/effects`, { body: refund() });
    const { policies } = rig.ports;
    const { set, ...others } = policies();
    const shown = async (key: string, rules: typeof set.rules) => {
      const spy = vi.spyOn(rig.ports, 'policies').mockReturnValue({ ...others, set: { ...set, rules } });
      const { json } = await rig.send('GET', `${WS}/budgets`, { key });
      spy.mockRestore();
      return list(json['budgets']);
    };
    const raised = set.rules.map((rule) => ({
      ...rule,
      obligations: rule.obligations.map((one) =>
        one.kind === 'budget' ? { ...one, budget: { ...one.budget, fixedLimit: 7_000_000 } } : one,
      ),
    }));
    const [row] = (await shown(rig.keys.account, raised)).filter(({ budget }) => budget === 'rig/agent-day');
    const window = expect.stringMatching(/^c:\d+:\d+$/) as unknown;
    expect(row).toMatchObject({ limit: 7_000_000, bucket: '["bot"]', window });
    expect((await shown(rig.keys.account, [])).map(({ budget }) => budget)).toContain('rig/team-day');
    expect(await shown(rig.keys.agent, [])).toEqual([]);
  });

  it.each(['agent', 'runner'] as const)(
    'show no more in the answer to a call of the agent, by its key: %s',
    async (key) => {
      const run = await rig.send('POST', `${WS}/effects`, { key: rig.keys[key], body: refund() });
      expect(run.json['decision']).toBe('committed');
      const mine = list(run.json['budgets']);
      expect(mine.find((row) => row['budget'] === 'rig/agent-day')).toMatchObject({ limit: 100_000 });
      const shared = mine.find((row) => row['budget'] === 'rig/team-day');
      expect(shared).toMatchObject({ level: 'ok' });
      expect(shared).not.toHaveProperty('spent');
    },
  );

  it('are nothing for the key of an agent that nothing names', async () => {
    await rig.send('POST', `${WS}/effects`, { body: refund() });
    const of = { name: 'n', kind: 'agent', workspace: 'demo', agent_id: 'ghost' };
    const made = await rig.send('POST', '/v1/beta/users/maria/keys', { key: rig.keys.admin, body: of });
    const { status, json } = await rig.send('GET', `${WS}/budgets`, { key: String(made.json['key']) });
    expect([status, json]).toEqual([200, { budgets: [] }]);
    expect((await rig.send('GET', `${WS}/budgets`)).json['budgets']).not.toEqual([]);
  });

  it('show a level to agents whose attribute has the value of the row, not to all that have the attribute', async () => {
    const row = 'rig/region-day';
    const params = { payment_id: 'pay_1', amount: 100, currency: 'EUR', reason: 'region' };
    const run = await rig.send('POST', `${WS}/effects`, { body: refund({ params }) });
    expect(run.json['decision']).toBe('committed');
    const seenBy = async (key: string) =>
      list((await rig.send('GET', `${WS}/budgets`, { key })).json['budgets']).map(({ budget }) => budget);
    expect(await seenBy(rig.keys.account)).toContain(row);
    expect(await seenBy(rig.keys.agent)).toContain(row);
    expect(await seenBy(rig.keys.otherAgent)).not.toContain(row);
    const { admin } = rig.keys;
    const seenByAgent = async (id: string, owner: string, region: string) => {
      await rig.send('POST', `${WS}/agents`, { key: admin, body: { id, owner, attributes: { region } } });
      const body = { name: 'n', kind: 'agent', workspace: 'demo', agent_id: id };
      const made = await rig.send('POST', '/v1/beta/users/maria/keys', { key: admin, body });
      return seenBy(String(made.json['key']));
    };
    expect(await seenByAgent('sibling', 'olga', 'eu')).toContain(row);
    expect(await seenByAgent('emigrant', 'olga', 'us')).not.toContain(row);
    const neighbour = await seenByAgent('neighbour', 'maria', 'eu');
    expect(neighbour).not.toContain(row);
    // Nor one of a team that it does not belong to.
    expect(neighbour).not.toContain('rig/team-day');
    expect(await seenBy(rig.keys.otherAgent)).toContain('rig/team-day');
  });
});

describe('keys', () => {
  const KEYS = '/v1/beta/users/maria/keys';

  it('are ended and rotated only under the user whose they are', async () => {
    const { admin } = rig.keys;
    const made = await rig.send('POST', KEYS, { key: admin, body: { name: 'mine', profile: 'mcp_readonly' } });
    const id = String(made.json['id']);
    const others = '/v1/beta/users/olga/keys';
    expect((await rig.send('DELETE', `${others}/${id}`, { key: admin })).status).toBe(404);
    expect((await rig.send('POST', `${others}/${id}/rotate`, { key: admin, body: {} })).status).toBe(404);
    expect((await rig.send('DELETE', `${KEYS}/key_000000000000`, { key: admin })).status).toBe(404);
    const ended = await rig.send('DELETE', `${KEYS}/${id}`, { key: admin });
    expect([ended.status, typeof ended.json['revoked_at']]).toEqual([200, 'string']);
  });

  it('are made by an administrative key with name and profile alone, shown once', async () => {
    const made = await rig.send('POST', KEYS, { key: rig.keys.admin, body: { name: 'look', profile: 'mcp_readonly' } });
    expect(made.status).toBe(201);
    expect(made.json).toMatchObject({
      name: 'look',
      kind: 'profile',
      profile: 'mcp_readonly',
      allowed_tools: ['svc.company_brain.query'],
      read_only: true,
      scopes: LOOKS,
    });
    const listed = await rig.send('GET', KEYS, { key: rig.keys.admin });
    expect(list(listed.json['keys']).map((key) => key.id)).toContain(made.json['id']);
    expect(listed.text).not.toContain(String(made.json['key']));
    expect(listed.text).not.toContain('hash');
  });

  it('last as long as they are asked for, in seconds, and are found by workspace and user', async () => {
    const { admin } = rig.keys;
    const body = { name: 'short', kind: 'account', workspace: 'elsewhere', expires_in: 3_600 };
    const made = await rig.send('POST', '/v1/beta/users/olga/keys', { key: admin, body });
    expect(made.headers['cache-control']).toBe('no-store');
    const { created_at: from, expires_at: to, made_by: by } = made.json;
    expect([Date.parse(String(to)) - Date.parse(String(from)), by]).toEqual([3_600_000, 'root']);
    const found = async (query: string) =>
      list((await rig.send('GET', `/v1/beta/keys?${query}`, { key: admin })).json['keys']);
    const elsewhere = await found('workspace=elsewhere');
    expect(elsewhere.map(({ id }) => id)).toContain(made.json['id']);
    expect(elsewhere.every((key) => key['workspace'] === 'elsewhere')).toBe(true);
    const ofOlga = await found('user_id=olga');
    expect(ofOlga.map(({ id }) => id)).toContain(made.json['id']);
    expect(ofOlga.every((key) => key['user_id'] === 'olga')).toBe(true);
    expect(await found('user_id=olga&workspace=demo')).toEqual([]);
    // The list under the user's own address has all of theirs, and nobody else's.
    expect(list((await rig.send('GET', '/v1/beta/users/olga/keys', { key: admin })).json['keys'])).toEqual(ofOlga);
    const nobody = await rig.send('POST', '/v1/beta/users/%20/keys', { key: admin, body });
    expect([nobody.status, list(nobody.json['errors'])[0]?.['path']]).toEqual([400, '/params/user_id']);
  });

  it('are ended once: who asks again is told when it was, and it stands in the ledger once', async () => {
    const { admin } = rig.keys;
    const body = { name: 'brief', kind: 'account', workspace: 'demo' };
    const made = await rig.send('POST', KEYS, { key: admin, body });
    const path = `${KEYS}/${String(made.json['id'])}`;
    const next = await rig.send('POST', `${path}/rotate`, { key: admin, body: {} });
    expect(next.headers['cache-control']).toBe('no-store');
    const old = list((await rig.send('GET', KEYS, { key: admin })).json['keys']).find(
      ({ id }) => id === made.json['id'],
    );
    // Without another word the old one stays good for an hour.
    const left = Date.parse(String(old?.['expires_at'])) - rig.ports.store.now();
    expect(left).toBeGreaterThan(3_500_000);
    expect(left).toBeLessThanOrEqual(3_600_000);
    const first = await rig.send('DELETE', path, { key: admin });
    const again = await rig.send('DELETE', path, { key: admin });
    expect([again.status, again.json['revoked_at']]).toEqual([200, first.json['revoked_at']]);
    expect((await rig.send('POST', `${path}/rotate`, { key: admin, body: {} })).status).toBe(409);
    const { items } = await rig.ports.store.ledgerPage('demo', {
      kind: 'key.revoked',
      since: null,
      until: null,
      limit: 200,
      cursor: null,
    });
    const ends = items.filter(({ data }) => data['key_id'] === made.json['id']);
    expect(ends).toHaveLength(1);
  });

  it('have one successor, however many ask for it at once', async () => {
    const body = { name: 'a', kind: 'account', workspace: 'demo' };
    const before = new Set(
      list((await rig.send('GET', KEYS, { key: rig.keys.admin })).json['keys']).map(({ id }) => id),
    );
    const old = await rig.send('POST', KEYS, { key: rig.keys.admin, body });
    const path = `${KEYS}/${String(old.json['id'])}/rotate`;
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => rig.send('POST', path, { key: rig.keys.admin, body: {} })),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 409, 409, 409]);
    const made = answers.find(({ status }) => status === 201)?.json['id'];
    const listed = await rig.send('GET', KEYS, { key: rig.keys.admin });
    const keys = list(listed.json['keys']);
    expect(keys.find(({ id }) => id === old.json['id'])).toMatchObject({ replaced_by: made });
    expect((await rig.send('GET', `${WS}/claims`, { key: String(old.json['key']) })).status).toBe(200);
    // Those that came second have left nothing behind that could be used.
    const usable = keys.filter((key) => key['name'] === 'a' && key['revoked_at'] === null).map(({ id }) => id);
    expect(new Set(usable.filter((id) => !before.has(id)))).toEqual(new Set([old.json['id'], made]));
  });

  it('are rotated with an overlap, and revoked at once', async () => {
    const body = { name: 'a', kind: 'account', workspace: 'demo' };
    const old = await rig.send('POST', KEYS, { key: rig.keys.admin, body });
    const oldKey = String(old.json['key']);
    expect((await rig.send('GET', `${WS}/claims`, { key: oldKey })).status).toBe(200);
    const path = `${KEYS}/${String(old.json['id'])}`;
    const next = await rig.send('POST', `${path}/rotate`, { key: rig.keys.admin, body: { overlap: 60 } });
    expect(next.status).toBe(201);
    expect(next.json).toMatchObject({ kind: 'account', workspace: 'demo', replaces: old.json['id'] });
    for (const key of [oldKey, String(next.json['key'])])
      expect((await rig.send('GET', `${WS}/claims`, { key })).status).toBe(200);
    expect((await rig.send('POST', `${path}/rotate`, { key: rig.keys.admin })).json['code']).toBe('conflict');
    expect((await rig.send('DELETE', path, { key: rig.keys.admin })).status).toBe(200);
    expect((await rig.send('GET', `${WS}/claims`, { key: oldKey })).status).toBe(401);
    expect((await rig.send('DELETE', `${KEYS}/key_nothing`, { key: rig.keys.admin })).status).toBe(404);
    // No overlap is none, and not the usual one.
    const other = await rig.send('POST', KEYS, { key: rig.keys.admin, body });
    const forever = { key: rig.keys.admin, body: { overlap: 30 * 86_400 + 1 } };
    expect((await rig.send('POST', `${KEYS}/${String(other.json['id'])}/rotate`, forever)).status).toBe(400);
    const atOnce = { key: rig.keys.admin, body: { overlap: 0 } };
    await rig.send('POST', `${KEYS}/${String(other.json['id'])}/rotate`, atOnce);
    expect((await rig.send('GET', `${WS}/claims`, { key: String(other.json['key']) })).status).toBe(401);
  });

  it('of agents and without a user are listed, rotated and revoked like all others', async () => {
    const ALL = '/v1/beta/keys';
    const admin = { key: rig.keys.admin };
    const before = await rig.send('GET', `${ALL}?kind=agent&agent_id=bot`, admin);
    const found = list(before.json['keys']);
    expect(found.length).toBeGreaterThan(0);
    expect(found.every((key) => key['kind'] === 'agent' && key['agent_id'] === 'bot')).toBe(true);
    const body = { name: 'of bot', kind: 'agent', agent_id: 'bot', workspace: 'demo' };
    const made = await rig.send('POST', KEYS, { ...admin, body });
    const path = `${ALL}/${String(made.json['id'])}`;
    const next = await rig.send('POST', `${path}/rotate`, { ...admin, body: { overlap: 60 } });
    expect(next.json).toMatchObject({ kind: 'agent', agent_id: 'bot', replaces: made.json['id'] });
    expect((await rig.send('POST', `${path}/rotate`, { ...admin, body: {} })).json['code']).toBe('conflict');
    for (const id of [made.json['id'], next.json['id']])
      expect((await rig.send('DELETE', `${ALL}/${String(id)}`, admin)).json['revoked_at']).not.toBeNull();
    for (const { json } of [made, next])
      expect((await rig.send('GET', `${WS}/claims`, { key: String(json['key']) })).status).toBe(401);
    for (const id of ['key_000000000000', 'key_x', 'admin'])
      expect((await rig.send('DELETE', `${ALL}/${id}`, admin)).status).toBe(404);
    expect((await rig.send('GET', ALL, { key: rig.keys.account })).json['code']).toBe('wrong_key_kind');
    expect((await rig.send('GET', `${ALL}?kind=root`, admin)).status).toBe(400);
  });

  it('permission is judged before the body, and all faults come at once', async () => {
    expect((await rig.send('POST', KEYS, { body: { nonsense: 1 } })).json['code']).toBe('wrong_key_kind');
    const answer = await rig.send('POST', KEYS, {
      key: rig.keys.admin,
      body: { profil: 'x', kind: 'root', scopes: ['all'] },
    });
    expect(
      list(answer.json['errors'])
        .map((error) => String(error['path']))
        .toSorted((a, b) => a.localeCompare(b)),
    ).toEqual(['/kind', '/name', '/profil', '/scopes/0']);
    const unknown = await rig.send('POST', KEYS, { key: rig.keys.admin, body: { name: 'x', profile: 'nothing' } });
    expect(unknown.status).toBe(400);
  });

  it('profiles are listed for every kind of key, each with what it grants', async () => {
    for (const key of [rig.keys.account, rig.keys.agent, rig.keys.admin, rig.keys.readonly]) {
      const { status, json } = await rig.send('GET', '/v1/mcp/key-profiles', { key });
      expect(status).toBe(200);
      const [readonly, , agent] = list(json['profiles']);
      expect(readonly).toMatchObject({
        scopes: LOOKS,
        allowed_tools: ['svc.company_brain.query'],
        read_only: true,
      });
      expect(agent).toMatchObject({ allowed_tools: null, read_only: false });
      expect(list(json['profiles']).map((profile) => profile['name'])).toEqual([
        'mcp_readonly',
        'mcp_operator',
        'mcp_agent',
        'auditor',
        // The rig's own, of its configuration.
        'governor',
        'decider',
      ]);
    }
  });
});

describe('workspaces and agents', () => {
  it('an agent that another gateway has just registered keeps what it was given', async () => {
    const given = {
      id: 'newcomer',
      workspace: 'demo',
      disabled: false,
      team: 'support',
      owner: 'olga',
      roles: ['r'],
      attributes: { trust: 2 },
    };
    await rig.ports.store.putAgent(given, { type: 'gateway', id: 'another' });
    expect((await rig.send('POST', `${WS}/agents`, { body: { id: 'newcomer' } })).status).toBe(409);
    expect(await rig.ports.store.agents()).toContainEqual(given);
  });

  it('a user registers a hundred agents with account keys at most, and an id is given once', async () => {
    const { account, approver, admin } = rig.keys;
    const register = (id: string, key: string) => rig.send('POST', `${WS}/agents`, { key, body: { id } });
    const twice = await Promise.all([register('wanted', account), register('wanted', approver)]);
    expect(twice.map(({ status }) => String(status)).toSorted()).toEqual(['201', '409']);
    const here = twice.find(({ status }) => status === 201);
    const shown = list((await rig.send('GET', `${WS}/agents`)).json['agents']).find(({ id }) => id === 'wanted');
    expect(shown).toEqual(here?.json);
    const given = { workspace: 'demo', disabled: false, team: null, owner: 'maria', roles: [], attributes: {} };
    for (let n = 0; n < 100; n += 1) {
      const agent = { ...given, id: `many-${n}`, registeredBy: 'maria', isSelfMade: true };
      await rig.ports.store.putAgent(agent, { type: 'user', id: 'maria' });
    }
    const { status, json } = await register('one-more', approver);
    expect([status, json['code']]).toEqual([409, 'conflict']);
    expect(json['detail']).toMatch(/^With keys of this user 100 agents are registered, as many as may be\./);
    expect((await register('one-more', admin)).status).toBe(201);
  });

  it('are made by an administrative key; an agent without facts by an account key too', async () => {
    const { admin } = rig.keys;
    expect((await rig.send('POST', '/v1/workspaces', { body: { id: 'new' } })).status).toBe(403);
    expect((await rig.send('POST', '/v1/workspaces', { key: admin, body: { id: 'New' } })).status).toBe(400);
    expect((await rig.send('POST', '/v1/workspaces', { key: admin, body: { id: 'new' } })).status).toBe(201);
    expect((await rig.send('POST', '/v1/workspaces', { key: admin, body: { id: 'new' } })).status).toBe(409);
    const { json } = await rig.send('GET', '/v1/workspaces', { key: admin });
    expect(list(json['workspaces']).map(({ id }) => id)).toEqual(expect.arrayContaining(['demo', 'elsewhere', 'new']));

    const plain = await rig.send('POST', `${WS}/agents`, { body: { id: 'helper' } });
    expect([plain.status, plain.json['owner']]).toEqual([201, 'ops']);
    // In budgets and rates it is one with all others that such a key registers.
    const made = async (id: string) => (await rig.ports.store.agents()).find((agent) => agent.id === id)?.isSelfMade;
    expect([await made('helper'), await made('newcomer')]).toEqual([true, undefined]);
    const asTeam = { id: 'insider', team: 'support' };
    expect((await rig.send('POST', `${WS}/agents`, { body: asTeam })).status).toBe(403);
    expect((await rig.send('POST', `${WS}/agents`, { key: admin, body: asTeam })).status).toBe(201);
    expect((await rig.send('POST', `${WS}/agents`, { key: admin, body: asTeam })).status).toBe(409);
    const ids = list((await rig.send('GET', `${WS}/agents`)).json['agents']).map(({ id }) => id);
    expect(ids).toEqual(expect.arrayContaining(['bot', 'helper', 'insider']));
    const own = list((await rig.send('GET', `${WS}/agents`, { key: rig.keys.agent })).json['agents']);
    expect(own.map(({ id }) => id)).toEqual(['bot']);
    const run = await rig.send('POST', `${WS}/effects`, { body: refund({ agent_id: 'insider' }) });
    expect(run.json['decision']).toBe('committed');
  });
});

describe('an agent', () => {
  it.each([
    ['another owner than the user of the key', { owner: 'nora' }, 403],
    ['roles', { roles: ['lead'] }, 403],
    ['attributes', { attributes: { region: 'eu' } }, 403],
    ['the user of the key as its owner', { owner: 'ops' }, 201],
  ])('with %s takes an administrative key, unless it is what a user may say', async (_, more, status) => {
    const body = { id: `of-${Object.keys(more).join('')}-${status}`, ...more };
    expect((await rig.send('POST', `${WS}/agents`, { body })).status).toBe(status);
    expect(
      (await rig.send('POST', `${WS}/agents`, { key: rig.keys.admin, body: { ...body, id: `${body.id}-too` } })).status,
    ).toBe(201);
  });

  it('is registered with no key that belongs to nobody; one that is disabled is shown so', async () => {
    const nobody = await rig.ports.authenticate(rig.keys.account);
    if ('failure' in nobody) throw new Error('the key is no longer good');
    const found = vi.spyOn(rig.ports, 'authenticate').mockResolvedValue({ ...nobody, user: null });
    const { status, json } = await rig.send('POST', `${WS}/agents`, { body: { id: 'orphan' } });
    found.mockRestore();
    expect([status, json['code']]).toEqual([403, 'wrong_key_kind']);
    const agents = list((await rig.send('GET', `${WS}/agents`)).json['agents']);
    const states = ['bot', 'retired', 'orphan'].map((id) => agents.find((agent) => agent.id === id)?.['disabled']);
    expect(states).toEqual([false, true, undefined]);
  });
});

describe('catalog', () => {
  it('shows a key that is limited to some tools no others', async () => {
    const of = { name: 'n', kind: 'account', workspace: 'demo', allowed_tools: ['payments.get', 'notes.add'] };
    const made = await rig.send('POST', '/v1/beta/users/maria/keys', { key: rig.keys.admin, body: of });
    const { json } = await rig.send('GET', `${WS}/tools`, { key: String(made.json['key']) });
    expect(list(json['tools']).map(({ name }) => name)).toEqual(['payments.get', 'notes.add']);
  });

  it('says of each rule where it stands, and what it comes before', async () => {
    const { set, ...others } = rig.ports.policies();
    const rules = set.rules.map((rule) => ({ ...rule, priority: 40 }));
    const policies = vi.spyOn(rig.ports, 'policies').mockReturnValue({ ...others, set: { ...set, rules } });
    const { json } = await rig.send('GET', `${WS}/policies`);
    policies.mockRestore();
    expect(list(json['rules']).find(({ id }) => id === 'rig/refund-large')).toEqual({
      id: 'rig/refund-large',
      set: 'rig',
      effect: 'require_approval',
      mode: 'enforce',
      description: 'Large refunds are looked at',
      priority: 40,
      file: expect.stringMatching(/policy\.yaml$/),
      line: expect.any(Number),
    });
  });

  it('shows tools without where they are, and to an agent only what is open to it', async () => {
    const all = await rig.send('GET', `${WS}/tools`);
    expect(list(all.json['tools']).map((tool) => tool['name'])).toEqual([
      'payments.refund',
      'deploy.start',
      'payments.get',
      'notes.add',
      'boxes.move',
    ]);
    expect(all.text).not.toContain('127.0.0.1');
    const agent = await rig.send('GET', `${WS}/tools`, { key: rig.keys.agent });
    expect(list(agent.json['tools']).map((tool) => tool['name'])).toEqual([
      'payments.refund',
      'notes.add',
      'boxes.move',
    ]);
  });

  it('shows the rules in force', async () => {
    const { json } = await rig.send('GET', `${WS}/policies`);
    expect(json).toMatchObject({ mode: 'enforce', version: rig.ports.policies().set.version });
    expect(
      list(json['rules'])
        .map(({ id }) => id)
        .toSorted(),
    ).toEqual([
      'rig/barred',
      'rig/box',
      'rig/note',
      'rig/refund',
      'rig/refund-by-two',
      'rig/refund-in-a-region',
      'rig/refund-in-a-slot',
      'rig/refund-large',
    ]);
    const agent = await rig.send('GET', `${WS}/policies`, { key: rig.keys.agent });
    expect(list(agent.json['rules'])[0]).not.toHaveProperty('file');
  });
});

describe('notifications', () => {
  const NOTIFICATIONS = '/v1/beta/notifications';
  const notification = {
    id: 'ntf_1',
    event: 'pause.set',
    workspace: 'demo',
    effectId: 'eff_1',
    data: { pause: 'pau_1' },
    at: Date.UTC(2026, 0, 1),
  } as const;
  const delivery: Delivery = {
    id: 'dlv_1',
    notification,
    receiver: 'ops-id',
    receiverName: 'ops',
    attempts: 2,
    lastFailure: 'it is away',
    createdAt: 1,
    triedFrom: 1,
    retryForMs: 1,
    state: { kind: 'waiting', dueAt: Date.UTC(2026, 0, 2) },
  };

  it('are listed with what became of them, and when they are sent again or were over', async () => {
    const at = Date.UTC(2026, 0, 3);
    const items: Delivery[] = [
      delivery,
      { ...delivery, state: { kind: 'delivered', at } },
      { ...delivery, state: { kind: 'dead', at }, notification: { ...notification, workspace: '', effectId: null } },
    ];
    const read = vi.spyOn(rig.ports.store, 'deliveries').mockResolvedValue({ items, next: 'more' });
    const { json } = await rig.send('GET', `${NOTIFICATIONS}?state=dead&limit=3`, { key: rig.keys.admin });
    expect(read).toHaveBeenCalledWith('dead', { limit: 3, cursor: null });
    read.mockRestore();
    const waiting = {
      id: 'dlv_1',
      webhook_id: 'ntf_1',
      event: 'pause.set',
      receiver: 'ops',
      state: 'waiting',
      attempts: 2,
      last_failure: 'it is away',
      workspace: 'demo',
      effect_id: 'eff_1',
      data: { pause: 'pau_1' },
      at: '2026-01-01T00:00:00.000Z',
      next_attempt_at: '2026-01-02T00:00:00.000Z',
      ended_at: null,
    };
    const over = { next_attempt_at: null, ended_at: '2026-01-03T00:00:00.000Z' };
    expect(json).toEqual({
      notifications: [
        waiting,
        { ...waiting, ...over, state: 'delivered' },
        { ...waiting, ...over, state: 'dead', workspace: null, effect_id: null },
      ],
      next_cursor: 'more',
    });
  });

  it.each([
    ['was given up', { kind: 'resent', delivery }, 200, undefined],
    ['waits already', { kind: 'waits', delivery }, 409, /^It waits to be sent already/],
    [
      'is for somebody whom the configuration no longer names',
      { kind: 'no_receiver', delivery },
      409,
      /does not name its receiver/,
    ],
    ['is not there', null, 404, /^There is no such notification/],
  ] as const)(
    'one that %s is sent again to a receiver that is known, or it is said why not',
    async (_, found, status, words) => {
      const resend = vi.spyOn(rig.ports.store, 'resend').mockResolvedValue(found);
      const answer = await rig.send('POST', `${NOTIFICATIONS}/dlv_1/resend`, { key: rig.keys.admin });
      expect(resend).toHaveBeenCalledWith('dlv_1', ['ops-id']);
      resend.mockRestore();
      expect(answer.status).toBe(status);
      if (words === undefined) expect(answer.json).toMatchObject({ id: 'dlv_1', state: 'waiting' });
      else expect(answer.json['detail']).toMatch(words);
    },
  );
});

describe('passkeys', () => {
  it('are listed with the key that they stand for, and when they were last used', async () => {
    const passkey: Passkey = {
      id: 'psk_1',
      name: 'Phone',
      user: 'maria',
      keyId: 'key_1',
      workspace: 'demo',
      credential: 'c',
      publicKey: 'p',
      counter: 1,
      transports: [],
      isSynced: true,
      isBackedUp: false,
      createdAt: Date.UTC(2026, 0, 1),
      lastUsedAt: Date.UTC(2026, 0, 2),
    };
    const read = vi.spyOn(rig.ports.store, 'passkeys').mockResolvedValue([passkey]);
    const { json } = await rig.send('GET', '/v1/beta/users/maria/passkeys', { key: rig.keys.approver });
    read.mockRestore();
    expect(list(json['passkeys'])).toEqual([
      {
        id: 'psk_1',
        name: 'Phone',
        user_id: 'maria',
        key_id: 'key_1',
        workspace: 'demo',
        synced: true,
        backed_up: false,
        created_at: '2026-01-01T00:00:00.000Z',
        last_used_at: '2026-01-02T00:00:00.000Z',
      },
    ]);
  });
});

describe('health', () => {
  it('needs no key', async () => {
    expect((await rig.send('GET', '/livez', { key: null })).json).toEqual({ status: 'ok' });
    expect((await rig.send('GET', '/readyz', { key: null })).json).toMatchObject({
      ready: true,
      store: { durability: 'fsync' },
    });
    const metrics = await rig.send('GET', '/metrics', { key: null });
    expect(metrics.text).toMatch(/svc_store_ready 1/);
    expect(metrics.text).toMatch(/svc_approvals_pending\{workspace="demo"\}/);
    const jwks = await rig.send('GET', '/.well-known/jwks.json', { key: null });
    expect(list(jwks.json['keys'])[0]).toMatchObject({ kty: 'OKP', crv: 'Ed25519' });
    expect(jwks.text).not.toContain('"d"');
  });
});
