import { makeKey } from '../../src/identity/key-format.ts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ProxiedWorld, startProxiedWorld } from './gateway.ts';

let world: ProxiedWorld;
beforeAll(async () => {
  world = await startProxiedWorld();
});
afterAll(() => world.close());

let counter = 0;
function key(): Record<string, string> {
  counter += 1;
  return { 'idempotency-key': `k-${counter}` };
}

async function arrived(): Promise<number> {
  return (await world.upstream.counts()).requests;
}

describe('a governed write', () => {
  test('answers as the upstream does, with what the gateway adds', async () => {
    const answer = await world.call('POST', '/shop/v1/shops/s1/orders', { headers: key(), body: '{"amount": 5}' });
    expect(answer.status).toBe(201);
    expect(answer.body).toMatchObject({ path: '/v1/shops/s1/orders', received: { amount: 5 } });
    expect(answer.headers.get('svc-decision')).toBe('committed');
    const id = answer.headers.get('svc-effect-id');
    expect(id).toMatch(/^eff_/);
    expect(answer.headers.get('svc-receipt')).toBe(`${world.url}/v1/workspaces/demo/effects/${id}/receipt`);
    expect(answer.headers.has('x-should-retry')).toBe(false);
    const effect = await world.store.effect('demo', String(id));
    expect(effect).toMatchObject({
      life: { state: 'committed' },
      actor: { via: 'proxy' },
      action: { target: 'shop:s1' },
    });
  });

  test('is run for the address that it came from, and its first stage is when and how long its key was looked at', async () => {
    const before = world.store.now();
    const answer = await world.call('POST', '/shop/v1/shops/s1/orders', { headers: key(), body: '{"amount": 5}' });
    const after = world.store.now();
    expect(world.ran()?.requestIp).toBe('127.0.0.1');
    const effect = await world.store.effect('demo', String(answer.headers.get('svc-effect-id')));
    const [first, next] = effect !== null && 'stages' in effect ? effect.stages : [];
    expect(first).toMatchObject({ stage: 'authenticate', status: 'passed' });
    const startedAt = first?.startedAt ?? 0;
    const durationMs = first?.durationMs ?? 0;
    expect(startedAt).toBeGreaterThanOrEqual(before - 1);
    expect(durationMs).toBeGreaterThan(0);
    expect(startedAt + durationMs).toBeLessThanOrEqual((next?.startedAt ?? after) + 1);
  });

  test('its cookies come back where the route says so', async () => {
    const cookieOf = async (path: string, init: Parameters<typeof world.call>[2] = {}): Promise<string | null> => {
      await world.upstream.mode({ mode: 'loud', times: 1, path: path.replace(/^\/\w+/, '') });
      const { status, headers } = await world.call(init.body === undefined ? 'GET' : 'POST', path, init);
      expect(status).toBeLessThan(300);
      return headers.get('set-cookie');
    };
    expect(await cookieOf('/open/v1/trigger')).not.toBeNull();
    expect(await cookieOf('/shop/v1/free', { body: '{"text":"x"}' })).toBeNull();
  });

  test('a target, and a claim, are named by parts of a Kubernetes manifest', async () => {
    const path = '/shop/apis/apps/v1/namespaces/prod/deployments/web';
    const manifest = { metadata: { name: 'web', labels: { 'app.kubernetes.io/part-of': 'shop/eu' } }, spec: {} };
    const body = JSON.stringify(manifest);
    const answer = await world.call('PUT', path, { headers: key(), body });
    expect(answer.status).toBe(201);
    expect(answer.body.received).toEqual(manifest);
    const id = String(answer.headers.get('svc-effect-id'));
    const effect = await world.store.effect('demo', id);
    expect(effect).toMatchObject({ action: { target: 'deployment:prod/web:shop/eu' } });
    const held = await world.call('PUT', path.replace('prod', 'held'), { headers: key(), body });
    expect(held.body).toMatchObject({ decision: 'denied_claim', reason: { code: 'claim_required' } });
    const before = await arrived();
    for (const labels of [undefined, { 'app.kubernetes.io/part-of': '' }, { 'app.kubernetes.io/part-of': ['a'] }]) {
      const nameless = JSON.stringify({ ...manifest, metadata: { name: 'web', labels } });
      const refused = await world.call('PUT', path, { headers: key(), body: nameless });
      expect(refused.status).toBe(400);
      expect(JSON.stringify(refused.body)).toContain('/params/metadata/labels/app.kubernetes.io~1part-of');
    }
    expect(await arrived()).toBe(before);
  });

  test('a target is named by a variable of GraphQL, and policy decides by it', async () => {
    const move = async (w: unknown): Promise<number> => {
      const body = JSON.stringify({ query: 'mutation($w: ID!) { move(w: $w) { id } }', variables: { w } });
      const { status, headers } = await world.call('POST', '/shop/graphql', { headers: key(), body });
      const id = headers.get('svc-effect-id');
      const effect = id === null ? null : await world.store.effect('demo', id);
      if (effect !== null) expect(effect).toMatchObject({ action: { target: `warehouse:${String(w)}` } });
      return status;
    };
    expect(await move('w1')).toBe(201);
    expect(await move(17)).toBe(201);
    expect(await move('theirs')).toBe(403);
    expect(await move({ id: 'w1' })).toBe(400);
  });

  test('what was read goes on, in the order in which it came, with the gateway’s credentials', async () => {
    const body = '{ "note" : "\\u00e9 é",\n"amount":1 }';
    await world.call('POST', '/shop/v1/shops/s%20x/orders?dry=true', {
      headers: { ...key(), 'x-tenant': 'blue' },
      body,
    });
    const last = (await world.upstream.ledger()).requests.at(-1);
    expect(last?.text).toBe(JSON.stringify(JSON.parse(body)));
    expect(last?.url).toBe('/v1/shops/s%20x/orders?dry=true');
    expect(last?.headers).toMatchObject({ 'x-upstream-token': 'shop-token-7', 'x-tenant': 'blue' });
    expect(last?.headers['idempotency-key']).toBeUndefined();
  });

  test('a duplicate is blocked with its receipt, quoted or not, and nothing arrives', async () => {
    const first = await world.call('POST', '/shop/v1/shops/s1/orders', {
      headers: { 'idempotency-key': 'dup' },
      body: '{"amount":5}',
    });
    const before = await arrived();
    const again = await world.call('POST', '/shop/v1/shops/s1/orders', {
      headers: { 'idempotency-key': '"dup"' },
      body: '{"amount": 5}',
    });
    expect(again.status).toBe(409);
    expect(again.body).toMatchObject({ decision: 'duplicate_blocked', effect_id: first.headers.get('svc-effect-id') });
    expect(again.body.receipt.jws).toMatch(/^ey/);
    expect(again.headers.get('x-should-retry')).toBe('false');
    const other = await world.call('POST', '/shop/v1/shops/s1/orders', {
      headers: { 'idempotency-key': 'dup' },
      body: '{"amount":6}',
    });
    expect(other.body.decision).toBe('idempotency_conflict');
    // What the header carries is a param, so it is another action.
    const tenant = await world.call('POST', '/shop/v1/shops/s1/orders', {
      headers: { 'idempotency-key': 'dup', 'x-tenant': 'red' },
      body: '{"amount":5}',
    });
    expect(tenant.body.decision).toBe('idempotency_conflict');
    expect(await arrived()).toBe(before);
  });

  test('a header that is no part of the action is a fact for policy all the same', async () => {
    const note = (id: string, agent: string) =>
      world.call('POST', '/shop/v1/notes', {
        headers: { 'idempotency-key': id, 'user-agent': agent },
        body: '{"text":"seen"}',
      });
    expect((await note('crawls', 'crawler/1')).body).toMatchObject({
      decision: 'denied_policy',
      reason: { rule: 'proxied/crawler' },
    });
    expect((await note('reads', 'reader/1')).headers.get('svc-decision')).toBe('committed');
    expect((await note('reads', 'reader/2')).headers.get('svc-decision')).toBe('duplicate_blocked');
  });

  test('another spelling of a path that some servers read otherwise is another action', async () => {
    const ask = async (path: string, id: string): Promise<unknown> => {
      const answer = await world.call('POST', path, { headers: { 'idempotency-key': id }, body: '{"amount":5}' });
      return answer.headers.get('svc-decision');
    };
    const sent = async (): Promise<unknown> => (await world.upstream.ledger()).requests.at(-1)?.url;
    expect(await ask('/shop/v1/shops/a+b/orders', 'plus')).toBe('committed');
    expect(await sent()).toBe('/v1/shops/a+b/orders');
    expect(await ask('/shop/v1/shops/a%2Bb/orders', 'plus')).toBe('idempotency_conflict');
    expect(await ask('/shop/v1/shops/a+b/orders', 'plus')).toBe('duplicate_blocked');
    // Escapes that mean the same to every server.
    expect(await ask('/shop/v1/shops/a%2bb/orders', 'case')).toBe('committed');
    expect(await ask('/shop/v1/shops/%61%2Bb/orders', 'case')).toBe('duplicate_blocked');
  });

  test('a pause that is heard after the admission holds the call back: nothing was sent, and the key runs later', async () => {
    const before = await arrived();
    const headers = key();
    const create = () => world.call('POST', '/shop/v1/shops/s1/orders', { headers, body: '{"amount":5}' });
    let lift = (): Promise<void> => Promise.resolve();
    world.beforeSend(async () => {
      lift = await world.pause('orders.create');
    });
    const answer = await create();
    expect([answer.status, answer.headers.get('svc-decision')]).toEqual([423, 'denied_paused']);
    expect(answer.body).toMatchObject({
      did_it_happen: 'no',
      reason: { code: 'paused', message: 'Paused before anything was sent.' },
    });
    expect(await arrived()).toBe(before);
    const id = String(answer.body.effect_id);
    expect(await world.store.effect('demo', id)).toMatchObject({ life: { state: 'denied' } });
    const events = (await world.store.ledger('demo', 0, 10_000)).filter(({ effectId }) => effectId === id);
    expect(events.map(({ kind }) => kind)).toEqual(['effect.admitted', 'effect.denied']);
    await lift();
    expect((await create()).status).toBe(201);
    expect(await arrived()).toBe(before + 1);
  });

  test('on_duplicate: replay gives the stored answer', async () => {
    const first = await world.call('POST', '/shop/v1/notes', {
      headers: { 'idempotency-key': 'r1' },
      body: '{"text":"a"}',
    });
    const again = await world.call('POST', '/shop/v1/notes', {
      headers: { 'idempotency-key': 'r1' },
      body: '{"text":"a"}',
    });
    expect([again.status, again.body]).toEqual([first.status, first.body]);
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    expect(again.headers.get('svc-decision')).toBe('duplicate_blocked');
    expect(again.headers.get('svc-receipt')).toBe(first.headers.get('svc-receipt'));
    expect(first.headers.has('idempotency-replayed')).toBe(false);
  });

  test('derive: the same action within the window is one call; none: each is its own', async () => {
    const derived = () => world.call('POST', '/shop/v1/derived', { body: '{"text":"a"}' });
    expect((await derived()).status).toBe(201);
    expect((await derived()).body.decision).toBe('duplicate_blocked');
    const free = () => world.call('POST', '/shop/v1/free', { body: '{"text":"a"}' });
    expect([(await free()).status, (await free()).status]).toEqual([201, 201]);
  });

  test.each([
    ['refuse', 422, 'failed'],
    ['unavailable', 504, 'unknown_effect'],
    ['error_after', 504, 'unknown_effect'],
    ['drop_after', 504, 'unknown_effect'],
    ['redirect', 504, 'unknown_effect'],
    ['never', 504, 'unknown_effect'],
    ['half', 201, 'committed'],
    ['accepted', 202, 'committed'],
    ['empty', 204, 'committed'],
    ['plain', 200, 'committed'],
  ])('%s: %i %s', async (mode, status, decision) => {
    const before = await arrived();
    const answer = await world.call('POST', '/shop/v1/notes', { headers: key(), body: `{"text":"mode:${mode}"}` });
    expect([answer.status, answer.headers.get('svc-decision')]).toEqual([status, decision]);
    expect(await arrived()).toBe(before + 1);
    if (status >= 400) expect(answer.headers.get('x-should-retry')).toBe('false');
    if (mode === 'plain') expect(answer.text).toBe('done');
  });

  test('what comes back in the gateway’s name, of the connection, or as a cookie is removed', async () => {
    const answer = await world.call('POST', '/shop/v1/notes', { headers: key(), body: '{"text":"mode:loud"}' });
    expect(answer.headers.get('x-kept')).toBe('yes');
    expect(answer.headers.get('svc-decision')).toBe('committed');
    expect(answer.headers.get('svc-receipt')).not.toBe('forged');
    for (const name of ['set-cookie', 'x-hop', 'x-should-retry']) expect(answer.headers.has(name), name).toBe(false);
  });

  test('a caller that goes away does not stop its write', async () => {
    const abort = new AbortController();
    const headers = { 'x-api-key': world.keys.bot, 'content-type': 'application/json', 'idempotency-key': 'gone' };
    const before = await arrived();
    await world.upstream.mode({ mode: 'held', times: 1, path: '/v1/notes' });
    const going = fetch(`${world.url}/shop/v1/notes`, {
      method: 'POST',
      headers,
      body: '{"text":"x"}',
      signal: abort.signal,
    });
    while ((await arrived()) === before);
    abort.abort();
    await expect(going).rejects.toThrow();
    const unanswered = expect.objectContaining({ method: 'POST', status: 499, cut: true });
    await expect.poll(() => world.accessed).toContainEqual(unanswered);
    await world.upstream.release();
    let again = await world.call('POST', '/shop/v1/notes', { headers, body: '{"text":"x"}' });
    while (again.body.decision === 'in_progress')
      again = await world.call('POST', '/shop/v1/notes', { headers, body: '{"text":"x"}' });
    expect(again.headers.get('svc-decision')).toBe('duplicate_blocked');
    expect(await arrived()).toBe(before + 1);
  });
});

describe('refused before anything is sent', () => {
  const orders = '/shop/v1/shops/s1/orders';
  type Case = [
    string,
    string,
    string,
    { key?: string | null; headers?: Record<string, string>; body?: string },
    number,
    string,
  ];
  test.each([
    ['no key', null],
    ['no key of ours', 'svc_x'],
    ['an unknown key', makeKey('agent').key],
  ])('a request with %s is refused in the form of its route', async (_, wrong) => {
    const { status, body } = await world.call('POST', '/model/v1/chat/completions', { key: wrong, body: '{}' });
    const code = wrong === null ? 'missing_key' : 'invalid_key';
    expect([status, body]).toMatchObject([401, { error: { message: expect.any(String), param: null, code } }]);
  });

  test.each([
    ['two keys', '', { authorization: `Bearer ${makeKey('agent').key}` }, 'two different keys'],
    ['a query of two readings', '?a=1;b', {}, 'one meaning for every server'],
    ['a name twice in its query', '?a=1&a=2', {}, 'one meaning for every server'],
    ['a path of two readings', '/a%00b', {}, 'The path cannot be used'],
    ['an encoded slash', '/a%2Fb', {}, 'encoded slash|The path cannot be used'],
  ] as const)('so is one with %s', async (_, more, headers, says) => {
    const { status, body } = await world.call('POST', `/model/v1/chat/completions${more}`, { headers, body: '{}' });
    expect([status, body]).toMatchObject([
      expect.any(Number),
      { error: { message: expect.stringMatching(says), param: null, code: expect.stringMatching(/^invalid_/) } },
    ]);
  });

  test('without a key, what is said is where the route takes one', async () => {
    const { key: ours } = makeKey('agent');
    const said = async (path: string, authorization?: string): Promise<unknown> => {
      const headers = authorization === undefined ? {} : { authorization };
      const { status, body } = await world.call('GET', path, { key: null, headers });
      expect([status, body.code]).toEqual([401, 'missing_key']);
      return body.detail;
    };
    const usual = 'Send an API key in the header X-API-Key.';
    expect(await said('/shop/v1/orders/o1')).toBe(usual);
    expect(await said('/shop/v1/orders/o1', 'Token of-somebody')).toBe(usual);
    expect(await said('/shop/v1/orders/o1', `Token ${ours}`)).toBe(
      'This route takes no key as Authorization: Token. Add token to its keys in the configuration, or send X-API-Key.',
    );
    const long = await said('/shop/v1/orders/o1', `${'S'.repeat(30)} ${ours}`);
    expect(long).toContain(`Authorization: ${'S'.repeat(20)}. Add ${'s'.repeat(20)} to`);
    expect(await said('/keyed/v1/any')).toBe('Send an API key in x-token or Authorization: token or ?k=.');
  });

  test('a key in the query, where the configuration refuses that', async () => {
    const path = `/shop/v1/orders/o1?api_key=${world.keys.bot}`;
    world.queryKeys('refuse');
    const { status, body, headers } = await world.call('GET', path, { key: null });
    const other = await world.call('GET', '/shop/v1/orders/o1');
    world.queryKeys('allow');
    expect([status, body.code, body.detail]).toEqual([401, 'invalid_key', expect.stringContaining('refused here')]);
    expect(headers.get('deprecation')).toBe('@1767225600');
    expect(other.status).toBe(200);
  });

  const cases: Case[] = [
    ['no key', 'POST', orders, { key: null, headers: key(), body: '{"amount":1}' }, 401, 'missing_key'],
    ['a wrong key', 'POST', orders, { key: 'svc_x', headers: key(), body: '{"amount":1}' }, 401, 'invalid_key'],
    ['no idempotency key', 'POST', orders, { body: '{"amount":1}' }, 400, 'idempotency_key_required'],
    ['no idempotency key of a PUT', 'PUT', '/shop/v1/files/a', { body: '{}' }, 400, 'idempotency_key_required'],
    [
      'a bad idempotency key',
      'POST',
      orders,
      { headers: { 'idempotency-key': 'a b' }, body: '{"amount":1}' },
      400,
      'invalid_request',
    ],
    [
      'another content type',
      'POST',
      orders,
      { headers: { ...key(), 'content-type': 'text/plain' }, body: '{"amount":1}' },
      415,
      'unsupported_media_type',
    ],
    [
      'a form',
      'POST',
      orders,
      { headers: { ...key(), 'content-type': 'application/x-www-form-urlencoded' }, body: 'amount=1' },
      415,
      'unsupported_media_type',
    ],
    [
      'a coded body',
      'POST',
      orders,
      { headers: { ...key(), 'content-encoding': 'gzip' }, body: '{"amount":1}' },
      400,
      'invalid_request',
    ],
    [
      'another charset',
      'POST',
      orders,
      { headers: { ...key(), 'content-type': 'application/json; charset=utf-16' }, body: '{"amount":1}' },
      400,
      'invalid_request',
    ],
    ['not JSON', 'POST', orders, { headers: key(), body: '{"amount":1' }, 400, 'invalid_json'],
    ['a name twice', 'POST', orders, { headers: key(), body: '{"amount":1,"amount":2}' }, 400, 'invalid_json'],
    [
      'a name twice but for case',
      'POST',
      orders,
      { headers: key(), body: '{"amount":1,"Amount":2}' },
      400,
      'invalid_json',
    ],
    ['a prototype', 'POST', orders, { headers: key(), body: '{"amount":1,"__proto__":{}}' }, 400, 'invalid_json'],
    [
      'a number beyond 2^53',
      'POST',
      orders,
      { headers: key(), body: '{"amount":9007199254740993}' },
      400,
      'invalid_json',
    ],
    ['an array', 'POST', orders, { headers: key(), body: '[1]' }, 400, 'invalid_request'],
    ['no body', 'POST', orders, { headers: key() }, 400, 'invalid_request'],
    [
      'a param that nobody uses',
      'POST',
      orders,
      { headers: key(), body: '{"amount":1,"shopp":"s2"}' },
      400,
      'invalid_request',
    ],
    [
      'a path param in the body',
      'POST',
      orders,
      { headers: key(), body: '{"amount":1,"shop":"s2"}' },
      400,
      'invalid_request',
    ],
    [
      'a header param in the body',
      'POST',
      orders,
      { headers: key(), body: '{"amount":1,"tenant":"x"}' },
      400,
      'invalid_request',
    ],
    [
      'a body param in the query',
      'POST',
      `${orders}?amount=5`,
      { headers: key(), body: '{"amount":1}' },
      400,
      'invalid_request',
    ],
    [
      'a query param that nobody uses',
      'POST',
      `${orders}?x=5`,
      { headers: key(), body: '{"amount":1}' },
      400,
      'invalid_request',
    ],
    [
      'a query name twice',
      'POST',
      `${orders}?dry=true&dry=false`,
      { headers: key(), body: '{"amount":1}' },
      400,
      'invalid_request',
    ],
    ['the schema', 'POST', orders, { headers: key(), body: '{"amount":"1"}' }, 400, 'invalid_request'],
    [
      'a query text of the wrong type',
      'POST',
      `${orders}?dry=yes`,
      { headers: key(), body: '{"amount":1}' },
      400,
      'invalid_request',
    ],
    [
      'too large',
      'POST',
      orders,
      { headers: key(), body: `{"amount":1,"note":"${'x'.repeat(70_000)}"}` },
      413,
      'too_large',
    ],
  ];
  test.each(cases)('%s', async (_name, method, path, options, status, code) => {
    const before = await arrived();
    const answer = await world.call(method, path, options);
    expect([answer.status, answer.body.code]).toEqual([status, code]);
    expect(answer.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    expect(answer.headers.get('x-should-retry')).toBe('false');
    expect(await arrived()).toBe(before);
  });

  test('an account key names its agent', async () => {
    const { account } = world.keys;
    const without = await world.call('POST', orders, { key: account, headers: key(), body: '{"amount":1}' });
    expect(without.status).toBe(400);
    expect(without.body.errors[0].path).toBe('/headers/svc-agent-id');
    const empty = { key: account, headers: { ...key(), 'svc-agent-id': '' }, body: '{"amount":1}' };
    expect((await world.call('POST', orders, empty)).body.errors[0].path).toBe('/headers/svc-agent-id');
    const read = await world.call('GET', '/shop/v1/orders/o1', { key: account });
    expect([read.status, read.body.errors[0].path]).toEqual([400, '/headers/svc-agent-id']);
    const named = { key: account, headers: { ...key(), 'svc-agent-id': 'bot' }, body: '{"amount":1}' };
    expect((await world.call('POST', orders, named)).status).toBe(201);
    const unknown = { ...named, headers: { ...key(), 'svc-agent-id': 'nobody' } };
    expect((await world.call('POST', orders, unknown)).body.decision).toBe('denied_identity');
    const other = { headers: { ...key(), 'svc-agent-id': 'other' }, body: '{"amount":1}' };
    expect((await world.call('POST', orders, other)).body.decision).toBe('denied_identity');
  });

  test('decisions: policy, permission, pause, undeclared', async () => {
    const before = await arrived();
    const dear = await world.call('POST', orders, { headers: key(), body: '{"amount":2000}' });
    expect([dear.status, dear.body.decision, dear.body.reason.rule]).toEqual([403, 'denied_policy', 'proxied/dear']);
    const readonly = await world.call('POST', orders, {
      key: world.keys.readonly,
      headers: key(),
      body: '{"amount":1}',
    });
    expect([readonly.status, readonly.body.decision]).toEqual([403, 'denied_permission']);
    const lift = await world.pause('orders.create');
    const paused = await world.call('POST', orders, { headers: key(), body: '{"amount":1}' });
    expect([paused.status, paused.body.decision]).toEqual([423, 'denied_paused']);
    await lift();
    for (const [method, path] of [
      ['POST', '/shop/v1/undeclared'],
      ['GET', '/shop/v1/undeclared'],
      ['DELETE', orders],
      ['PUT', '/shop'],
      ['OPTIONS', orders],
      ['HEAD', orders],
      ['POST', '/open/v1/x'],
      ['GET', '/nowhere'],
      ['GET', '/shopping/v1/orders/o1'],
      ['GET', '/SHOP/v1/orders/o1'],
    ] as const) {
      const answer = await world.call(method, path, method === 'HEAD' || method === 'GET' ? {} : { headers: key() });
      expect([method, path, answer.status, answer.headers.get('svc-decision')]).toEqual([
        method,
        path,
        403,
        'denied_policy',
      ]);
      if (method === 'HEAD') continue;
      expect(answer.body.reason.code).toBe('route_not_declared');
      // Libraries show the message alone: it has the line that would declare the request.
      if (path.startsWith('/shop/')) {
        const line = `- { match: "${method} ${path.slice('/shop'.length)}", tool: … }`;
        expect(answer.body.reason.message).toContain(line);
      }
      // There is no effect to be read: a link would lead nowhere.
      expect(Object.keys(answer.body.links)).toEqual(['docs']);
    }
    expect(await arrived()).toBe(before);
    const last = (await world.store.ledger('demo', 0, 10_000)).filter(
      ({ data }) => data['code'] === 'route_not_declared',
    );
    expect(last.length).toBe(10);
  });

  test('another’s key in the path, Svc-Agent-Id or Idempotency-Key is refused, and not shown', async () => {
    const { key: other } = makeKey('account');
    for (const [path, headers] of [
      [`/shop/v1/orders/${other}`, {}],
      [`/shop/v1/orders/${other.replaceAll('_', '%5F')}`, {}],
      ['/shop/v1/nowhere', { 'svc-agent-id': other }],
      ['/shop/v1/nowhere', { 'idempotency-key': other }],
    ] as const) {
      const answer = await world.call('GET', path, { key: world.keys.account, headers });
      expect([answer.status, answer.body.code]).toEqual([400, 'invalid_request']);
      expect(answer.body.detail).toContain('holds an API key');
      expect(answer.text).not.toContain(other.slice(-38));
    }
  });

  test('a key that is no agent’s is refused itself, and writes no more under other names', async () => {
    const names = Array.from({ length: 60 }, (_, n) => `name-${n}`);
    await Promise.all(
      names.map((name) =>
        world.call('GET', '/shop/v1/named', { key: world.keys.account, headers: { 'svc-agent-id': name } }),
      ),
    );
    const events = async () =>
      (await world.store.ledger('demo', 0, 10_000)).filter(({ data }) => data['path'] === '/v1/named');
    let written = await events();
    while (!written.some(({ data }) => typeof data['count'] === 'number')) written = await events();
    expect(written.length).toBeLessThan(60);
    expect(new Set(written.map(({ actor }) => actor.type))).toEqual(new Set(['key']));
  });

  test('undeclared requests beyond ten a second are one counted event', async () => {
    await Promise.all(Array.from({ length: 60 }, () => world.call('GET', '/shop/v1/flood')));
    const events = async () =>
      (await world.store.ledger('demo', 0, 10_000)).filter(
        ({ data }) => data['path'] === '/v1/flood' || 'count' in data,
      );
    let counted = await events();
    while (!counted.some(({ data }) => typeof data['count'] === 'number')) counted = await events();
    expect(counted.length).toBeLessThan(60);
  });
});

test('own paths stay the gateway’s', async () => {
  expect((await world.call('GET', '/livez')).body).toEqual({ own: true });
  expect((await world.call('GET', '/v1/nothing')).status).toBe(404);
  expect((await world.call('POST', '/mcp/x')).status).toBe(404);
});

test('a key in the query is deprecated, and goes no further', async () => {
  const { bot } = world.keys;
  const answer = await world.call('GET', `/shop/v1/orders/o1?limit=3&api_key=${bot}`, { key: null });
  expect(answer.status).toBe(200);
  expect(answer.headers.get('deprecation')).toMatch(/^@/);
  expect((await world.upstream.ledger()).requests.at(-1)?.url).toBe('/v1/orders/o1?limit=3');
  const written = await world.call('POST', `/shop/v1/notes?api_key=${bot}`, {
    key: null,
    headers: { 'idempotency-key': 'by-query' },
    body: '{"text":"by a key in the query"}',
  });
  expect([written.status, written.headers.get('deprecation')]).toEqual([201, expect.stringMatching(/^@/)]);
  expect((await world.upstream.ledger()).requests.at(-1)?.url).toBe('/v1/notes');
  const alone = await world.call('GET', `/shop/v1/orders/o1?api_key=${bot}`, { key: null });
  expect(alone.status).toBe(200);
  expect((await world.upstream.ledger()).requests.at(-1)?.url).toBe('/v1/orders/o1');
  expect((await world.call('GET', `/shop/v1/orders/o1?api_key=${bot}x`)).status).toBe(401);
});
