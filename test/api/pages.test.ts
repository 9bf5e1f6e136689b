import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import { type Rig, refund, startRig } from './rig.ts';

const WS = '/v1/workspaces/demo';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

const AT = '2026-01-02T03:04:05.678Z';

const rows = (value: unknown) => value as readonly { readonly [name: string]: unknown }[];

describe('a page', () => {
  it.each([
    `${WS}/effects`,
    `${WS}/approvals`,
    `${WS}/ledger`,
    `${WS}/observed-reads`,
    `${WS}/brain/entities`,
    '/v1/beta/ledger',
    '/v1/beta/notifications',
  ])('of %s has one to two hundred, and begins where one before it ended', async (path) => {
    const key = path.includes('/beta/') ? rig.keys.admin : rig.keys.account;
    const faultOf = async (query: string): Promise<unknown> => {
      const { status, json } = await rig.send('GET', `${path}?${query}`, { key });
      return status === 400 ? rows(json['errors'])[0]?.['path'] : status;
    };
    for (const query of ['limit=1', 'limit=200']) expect([query, await faultOf(query)]).toEqual([query, 200]);
    for (const query of ['limit=0', 'limit=201', 'limit=999'])
      expect([query, await faultOf(query)]).toEqual([query, '/query/limit']);
    expect(await faultOf('cursor=%21')).toBe('/query/cursor');
  });
});

describe('requests for approval', () => {
  it('are listed newest first, page by page, by how they stand', async () => {
    const made: string[] = [];
    for (const amount of [61_000, 62_000, 63_000]) {
      const body = refund({ params: { payment_id: 'pay_1', amount, currency: 'EUR' } });
      const { json } = await rig.send('POST', `${WS}/effects`, { body });
      made.push((json['approval'] as unknown as { readonly id: string }).id);
    }
    await rig.send('POST', `${WS}/approvals/${made[1]}/reject`, { key: rig.keys.approver, body: {} });
    const ids = async (query: string): Promise<unknown[]> => {
      const { json } = await rig.send('GET', `${WS}/approvals?${query}`);
      return [...rows(json['approvals']).map(({ id }) => id), json['next_cursor'] === null];
    };
    expect(await ids('')).toEqual([...made.toReversed(), true]);
    expect(await ids('status=pending')).toEqual([made[2], made[0], true]);
    expect(await ids('status=rejected')).toEqual([made[1], true]);
    expect(await ids('status=used')).toEqual([true]);
    const first = await rig.send('GET', `${WS}/approvals?limit=2`);
    expect(rows(first.json['approvals']).map(({ id }) => id)).toEqual([made[2], made[1]]);
    expect(await ids(`limit=2&cursor=${String(first.json['next_cursor'])}`)).toEqual([made[0], true]);
  });
});

describe('effects', () => {
  it('are found by what they did, to what, for whom, by which key, under which rule, and who approved them', async () => {
    const since = new Date(rig.ports.store.now()).toISOString();
    const run = async (name: string, key: string, agent: string, amount: number) => {
      const params = { payment_id: name, amount, currency: 'EUR' };
      const { json } = await rig.send('POST', `${WS}/effects`, { key, body: refund({ agent_id: agent, params }) });
      return json;
    };
    const [one, two] = [
      await run('pay_1', rig.keys.agent, 'bot', 100),
      await run('pay_2', rig.keys.account, 'other-bot', 100),
    ];
    const three = await run('pay_7', rig.keys.account, 'bot', 60_000);
    const { id } = three['approval'] as unknown as { readonly id: string };
    await rig.send('POST', `${WS}/approvals/${id}/approve`, { key: rig.keys.approver, body: {} });
    const names = new Map([one, two, three].map(({ effect_id: of }, n) => [of as unknown, n + 1]));
    const found = async (query: string): Promise<unknown[]> => {
      const { json } = await rig.send('GET', `${WS}/effects?since=${since}&${query}`);
      return rows(json['effects']).map((effect) => names.get(effect['effect_id']));
    };
    const keyOf = (key: string): string => `key_${/^svc_[a-z]+_(.{12})/.exec(key)?.[1] ?? ''}`;
    for (const [query, which] of [
      ['', [3, 2, 1]],
      ['target=payment:pay_2', [2]],
      ['agent_id=bot', [3, 1]],
      [`key_id=${keyOf(rig.keys.agent)}`, [1]],
      ['user=ops', [3, 2]],
      ['rule=rig/refund-large', [3]],
      ['rule=rig/refund', [2, 1]],
      ['approver=maria', [3]],
      ['approver=olga', []],
      ['decision=denied_policy', []],
      ['state=committed&tool=payments.refund', [3, 2, 1]],
      ['tool=notes.add', []],
      [`until=${since}`, []],
    ] as const)
      expect([query, await found(query)]).toEqual([query, which]);
  });
});

describe('effects that a key may see', () => {
  it('are those of its agent, also where it asks for another’s', async () => {
    await rig.send('POST', `${WS}/effects`, { key: rig.keys.otherAgent, body: refund({ agent_id: undefined }) });
    const listed = async (query: string) =>
      rows((await rig.send('GET', `${WS}/effects?${query}`, { key: rig.keys.otherAgent })).json['effects']);
    expect(new Set((await listed('')).map((effect) => effect['agent_id']))).toEqual(new Set(['other-bot']));
    expect(await listed('agent_id=bot')).toEqual([]);
  });

  it('show what the upstream answered to keys that may call the tool, and to no others', async () => {
    const { json } = await rig.send('POST', `${WS}/effects`, { body: refund() });
    const path = `${WS}/effects/${String(json['effect_id'])}`;
    const results = async (key: string) => {
      const { effect } = (await rig.send('GET', path, { key })).json as unknown as { readonly effect: object };
      const list = await rig.send('GET', `${WS}/effects?limit=1`, { key });
      return ['result' in effect, 'result' in (rows(list.json['effects'])[0] ?? {})];
    };
    expect(await results(rig.keys.agent)).toEqual([true, true]);
    expect(await results(rig.keys.restricted)).toEqual([false, false]);
  });
});

describe('the params of an effect', () => {
  it('are disclosed to keys that may send them: not to those with a profile, nor to those for other tools', async () => {
    const { json } = await rig.send('POST', `${WS}/effects`, { body: refund() });
    const path = `${WS}/effects/${String(json['effect_id'])}/receipt?disclosure=1`;
    const open = await rig.send('GET', path);
    expect([open.status, Object.keys(open.json)]).toEqual([200, ['receipt', 'disclosure']]);
    for (const key of ['readonly', 'operator', 'runner', 'auditor', 'restricted'] as const) {
      expect((await rig.send('GET', path.replace('?disclosure=1', ''), { key: rig.keys[key] })).status).toBe(200);
      const refused = await rig.send('GET', path, { key: rig.keys[key] });
      expect([key, refused.status, refused.json['code']]).toEqual([key, 403, 'insufficient_scope']);
    }
    const denied = await rig.send('GET', path, { key: rig.keys.otherAgent });
    expect(denied.status).toBe(404);
  });

  it('are probed for by who may see the effect; for others there is none', async () => {
    const { json } = await rig.send('POST', `${WS}/effects`, { body: refund() });
    const path = `${WS}/effects/${String(json['effect_id'])}/probe`;
    expect((await rig.send('POST', path, { key: rig.keys.agent })).json['code']).toBe('not_unknown');
    expect((await rig.send('POST', path, { key: rig.keys.otherAgent })).json['code']).toBe('not_found');
  });
});

describe('reads that passed', () => {
  it('are those that policy would have stopped, or all, newest first; an agent sees its own', async () => {
    const read = (agent: string, data: JsonObject) => ({
      kind: 'read.batch' as const,
      effectId: null,
      actor: { type: 'agent', id: agent } as const,
      data: { upstream: 'payments', count: 1, first_at: AT, last_at: AT, statuses: { '200': 1 }, ...data },
    });
    const observed = { observed: 'denied_policy', observed_by: 'rig/barred' };
    await rig.ports.store.append('demo', [
      read('bot', { example: 'GET /1', ...observed }),
      read('bot', { example: 'GET /2', tool: 'payments.get' }),
      read('other-bot', { example: 'GET /3', ...observed }),
      read('bot', { example: 'GET /4', ...observed }),
    ]);
    const seen = async (query: string, key = rig.keys.account) => {
      const { json } = await rig.send('GET', `${WS}/observed-reads?${query}`, { key });
      return { examples: rows(json['reads']).map(({ example }) => example), next: json['next_cursor'] };
    };
    expect(await seen('')).toEqual({ examples: ['GET /4', 'GET /3', 'GET /1'], next: null });
    expect(await seen('all=true')).toEqual({ examples: ['GET /4', 'GET /3', 'GET /2', 'GET /1'], next: null });
    expect(await seen('', rig.keys.otherAgent)).toEqual({ examples: ['GET /3'], next: null });
    expect(await seen('limit=3')).toEqual({ examples: ['GET /4', 'GET /3', 'GET /1'], next: null });
    const first = await seen('limit=2');
    expect(first.examples).toEqual(['GET /4', 'GET /3']);
    expect(await seen(`limit=2&cursor=${String(first.next)}`)).toEqual({ examples: ['GET /1'], next: null });
    const { json } = await rig.send('GET', `${WS}/observed-reads?all=true`);
    expect(rows(json['reads'])[1]).toMatchObject({
      agent_id: 'other-bot',
      observed: { would: 'denied_policy', rule: 'rig/barred' },
    });
    expect(rows(json['reads'])[2]).toMatchObject({ tool: 'payments.get', observed: null, count: 1 });
  });

  it('are looked for in a part of the ledger: a page may be empty, and says where it ended', async () => {
    const other = { kind: 'store.restored', effectId: null, actor: { type: 'gateway', id: 'g' }, data: {} } as const;
    for (let batch = 0; batch < 5; batch += 1)
      await rig.ports.store.append(
        'demo',
        Array.from({ length: 100 }, () => other),
      );
    const path = `${WS}/observed-reads`;
    let cursor: string | null = null;
    let found: unknown[] = [];
    let pages = 0;
    do {
      const query = cursor === null ? '' : `?cursor=${cursor}`;
      const { json } = await rig.send('GET', `${path}${query}`);
      found = [...found, ...rows(json['reads']).map(({ example }) => example)];
      const next: unknown = json['next_cursor'];
      cursor = typeof next === 'string' ? next : null;
      pages += 1;
    } while (cursor !== null && pages < 20);
    expect(found).toEqual(['GET /4', 'GET /3', 'GET /1']);
    expect(pages).toBeGreaterThan(1);
  });
});
