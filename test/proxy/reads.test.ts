import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseKey } from '../../src/identity/key-format.ts';
import { createUpstreams } from '../../src/upstreams/upstreams.ts';
import { type ProxiedWorld, startProxiedWorld } from './gateway.ts';

let world: ProxiedWorld;
beforeAll(async () => {
  world = await startProxiedWorld();
});
afterAll(() => world.close());

async function arrived(): Promise<number> {
  return (await world.upstream.counts()).requests;
}

async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setImmediate(resolve));
}

describe('reads stream through', () => {
  test('as the upstream answers, without an effect', async () => {
    await world.upstream.state('/v1/orders/o1', { id: 'o1', total: 5 });
    const answer = await world.call('GET', '/shop/v1/orders/o1?limit=10');
    expect([answer.status, answer.body]).toEqual([200, { id: 'o1', total: 5 }]);
    expect(answer.headers.get('svc-decision')).toBe('committed');
    expect(answer.headers.has('svc-effect-id')).toBe(false);
    const last = (await world.upstream.ledger()).requests.at(-1);
    expect([last?.url, last?.headers['x-upstream-token']]).toEqual(['/v1/orders/o1?limit=10', 'shop-token-7']);
    const head = await world.call('HEAD', '/shop/v1/orders/o1');
    expect([head.status, head.text]).toEqual([200, '']);
    expect((await world.upstream.ledger()).requests.at(-1)?.method).toBe('HEAD');
  });

  test('the path that was matched is the path that is sent', async () => {
    for (const path of [
      "/v1/orders/a-b_c~d!$&'()*+,=:@",
      '/v1/orders/a%3Bb',
      '/v1/orders/%C3%A9%20x',
      '/v1/orders/%252e',
      '/v1/orders/%41',
    ]) {
      expect((await world.call('GET', `/shop${path}`)).status).toBe(200);
      expect((await world.upstream.ledger()).requests.at(-1)?.url).toBe(path);
    }
  });

  test.each([
    ['limit=ten', 400],
    ['limit=1&limit=2', 400],
    ['other=1', 400],
    ['limit=010', 400],
  ])('a query that does not fit: %s', async (query, status) => {
    const before = await arrived();
    const answer = await world.call('GET', `/shop/v1/orders/o1?${query}`);
    expect([answer.status, answer.body.code]).toEqual([status, 'invalid_request']);
    expect(await arrived()).toBe(before);
  });

  test('a read with a body: inspected, and the bytes go on', async () => {
    const body = '{ "text": "x",  "page": {"n": 1} }';
    const answer = await world.call('POST', '/shop/v1/search', { body });
    expect(answer.status).toBe(201);
    const last = (await world.upstream.ledger()).requests.at(-1);
    expect([last?.text, last?.headers['content-type']]).toEqual([body, 'application/json']);
    expect((await world.call('POST', '/shop/v1/search', { body: '{"a":1,"a":2}' })).body.code).toBe('invalid_json');
    const before = await arrived();
    const carried = await world.call('POST', '/shop/v1/search', { body: `{"text":"${world.keys.bot}"}` });
    expect([carried.status, carried.body.code, await arrived()]).toEqual([400, 'invalid_request', before]);
    const escaped = await world.call('POST', '/shop/v1/search', {
      body: `{"text":"\\u0073${world.keys.bot.slice(1)}"}`,
    });
    expect([escaped.status, escaped.body.code, await arrived()]).toEqual([400, 'invalid_request', before]);
  });

  test('where links are looked for, the answer is asked for whole and plain', async () => {
    const headers = { 'accept-encoding': 'gzip', range: 'bytes=0-9', 'if-range': '"etag"' };
    await world.call('GET', '/linked/v1/any', { headers });
    const last = (await world.upstream.ledger()).requests.at(-1);
    expect(last?.url).toBe('/v1/any');
    for (const name of Object.keys(headers)) expect(last?.headers, name).not.toHaveProperty(name);
  });

  test('a policy that refuses, obligations, a pause: the core decides, with a record', async () => {
    const before = await arrived();
    const secret = await world.call('GET', '/shop/v1/secret');
    expect([secret.status, secret.body.decision, secret.body.reason.code]).toEqual([
      403,
      'denied_policy',
      'no_rule_allows',
    ]);
    expect(secret.body.effect_id).toMatch(/^eff_/);
    const lift = await world.pause('orders.get');
    const paused = await world.call('GET', '/shop/v1/orders/o1');
    expect([paused.status, paused.body.decision]).toEqual([423, 'denied_paused']);
    await lift();
    expect(await arrived()).toBe(before);
    const counted = [];
    for (let n = 0; n < 3; n += 1) counted.push(await world.call('GET', '/shop/v1/counted'));
    expect(counted.map(({ status, headers }) => [status, headers.get('svc-decision')])).toEqual([
      [200, 'committed'],
      [200, 'committed'],
      [402, 'denied_budget'],
    ]);
    expect(counted[0]?.headers.get('svc-effect-id')).toMatch(/^eff_/);
    expect(await arrived()).toBe(before + 2);
  });

  test('a pause of its upstream, of the agent, of the key or of all stops a read; one of another upstream does not', async () => {
    for (const scope of [
      { kind: 'key', id: `key_${parseKey(world.keys.bot)?.handle}` },
      { kind: 'upstream', id: 'shop' },
      { kind: 'agent', id: 'bot' },
      { kind: 'workspace' },
    ] as const) {
      const lift = await world.pause(scope);
      expect((await world.call('GET', '/shop/v1/orders/o1')).status).toBe(423);
      await lift();
    }
    const lift = await world.pause({ kind: 'upstream', id: 'open' });
    expect((await world.call('GET', '/shop/v1/orders/o1')).status).toBe(200);
    await lift();
  });

  test('a gateway that has not heard of keys and pauses for too long lets nothing pass by them', async () => {
    const before = await arrived();
    world.heard(false);
    for (const path of ['/shop/v1/orders/o1', '/open/v1/any/thing']) {
      const answer = await world.call('GET', path);
      expect([answer.status, answer.body.code, answer.headers.get('retry-after')]).toEqual([503, 'not_ready', '1']);
    }
    world.heard(true);
    expect(await arrived()).toBe(before);
    expect((await world.call('GET', '/shop/v1/orders/o1')).status).toBe(200);
  });

  test('undeclared reads pass where the route says so, and only there', async () => {
    const before = await arrived();
    const answer = await world.call('GET', '/open/v1/any/thing?a=1&b[]=2');
    expect(answer.status).toBe(200);
    expect((await world.upstream.ledger()).requests.at(-1)?.url).toBe('/v1/any/thing?a=1&b[]=2');
    const loud = await world.call('GET', '/open/v1/any?mode=loud');
    expect(loud.headers.getSetCookie()).toEqual(['session=1', 'other=2']);
    expect(loud.headers.get('svc-decision')).toBe('committed');
    expect(loud.headers.has('svc-receipt')).toBe(false);
    const shop = await world.call('GET', '/shop/v1/orders/o1?mode=loud');
    expect(shop.headers.has('set-cookie')).toBe(false);
    expect(await arrived()).toBe(before + 3);
    const lift = await world.pause('open.**');
    expect((await world.call('GET', '/open/v1/any')).body.decision).toBe('denied_paused');
    await lift();
  });

  test('an undeclared read is judged by policy, which knows that it is undeclared', async () => {
    const before = await arrived();
    const closed = await world.call('GET', '/closed/v1/any');
    expect(closed.status).toBe(403);
    expect(closed.body).toMatchObject({ decision: 'denied_policy', reason: { code: 'no_rule_allows' } });
    const events = await world.store.ledger('demo', 0, 100_000);
    expect(events.find(({ effectId }) => effectId === closed.body.effect_id)).toMatchObject({
      kind: 'effect.denied',
      data: { path: '/v1/any', upstream: 'closed', code: 'no_rule_allows' },
    });
    // What a rule asks of the store cannot be had of what the core does not know.
    expect((await world.call('GET', '/counted/v1/any')).body).toMatchObject({ reason: { code: 'rule_denied' } });
    // The rule that lets undeclared reads pass is none for what is declared there.
    expect((await world.call('GET', '/open/v1/hidden/1')).body).toMatchObject({ reason: { code: 'no_rule_allows' } });
    expect(await arrived()).toBe(before);
  });

  test('reads stand in the ledger, in batches', async () => {
    for (let n = 0; n < 20; n += 1) await world.call('GET', '/shop/v1/orders/batch');
    const batches = async () =>
      (await world.store.ledger('demo', 0, 10_000)).filter(({ kind }) => kind === 'read.batch');
    const total = async (tool: string) =>
      (await batches())
        .filter(({ data }) => data['tool'] === tool)
        .reduce((sum, { data }) => sum + Number(data['count']), 0);
    await until(async () => (await total('orders.get')) >= 20);
    const [one, ...others] = await batches();
    expect(one?.actor).toEqual({ type: 'agent', id: 'bot' });
    expect(one?.data).toMatchObject({ upstream: 'shop', rule: 'proxied/all' });
    // Fewer than what they count, of this tool and of the others.
    const counts = [one, ...others].map((batch) => Number(batch?.data['count']));
    expect(counts.length).toBeLessThan(counts.reduce((sum, count) => sum + count, 0));
  });
});

describe('the time-out of a tool holds for each wait of a stream', () => {
  const events = (mode: string): Promise<string> =>
    fetch(`${world.url}/shop/v1/orders/o1?mode=${mode}`, { headers: { 'x-api-key': world.keys.bot } }).then((answer) =>
      answer.text(),
    );

  test('and not for the whole of it', async () => {
    const began = performance.now();
    expect((await events('drip')).match(/data: /g)).toHaveLength(10);
    expect(performance.now() - began).toBeGreaterThan(2_000);
  });

  test('which is cut where nothing more comes, so that nobody takes it for whole', async () => {
    const began = performance.now();
    await expect(events('stall')).rejects.toThrow('terminated');
    // The upstream's is 20 s.
    expect(performance.now() - began).toBeLessThan(10_000);
  });

  test('and for the first bytes', async () => {
    const began = performance.now();
    const answer = await world.call('GET', '/shop/v1/orders/o1?mode=never');
    expect([answer.status, answer.body.reason.message]).toEqual([
      502,
      'The upstream did not answer within the time-out.',
    ]);
    // The upstream's is 20 s.
    expect(performance.now() - began).toBeLessThan(10_000);
  });
});

describe('nothing is repeated', () => {
  test.each([
    ['unavailable', 503, 'failed'],
    ['refuse', 422, 'failed'],
    ['status_500', 500, 'failed'],
    ['status_303', 303, 'failed'],
    ['drop_before', 502, 'failed'],
    ['never', 502, 'failed'],
    ['bad_chunk', 502, 'failed'],
    ['not_modified_length', 304, 'failed'],
  ])('%s arrives once', async (mode, status, decision) => {
    const before = await arrived();
    const answer = await world.call('GET', `/shop/v1/orders/o1?mode=${mode}`);
    expect([answer.status, answer.headers.get('svc-decision')]).toEqual([status, decision]);
    expect(answer.headers.get('x-should-retry')).toBe(status === 502 || status === 503 ? 'true' : 'false');
    expect(await arrived()).toBe(before + 1);
  });

  test('the pool for reads does not repeat on a connection that broke when it was reused', async () => {
    let requests = 0;
    const server = createServer((socket) => {
      let on = 0;
      socket.on('data', () => {
        requests += 1;
        on += 1;
        if (on === 1) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
        else socket.destroy();
      });
      socket.on('error', () => {});
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
    const settings = { id: 'x', url, timeoutMs: 10_000, connections: 1, network: 'any', credentials: null } as const;
    const upstreams = createUpstreams([settings], { responseBytes: 1000, responseKeptBytes: 1000 });
    const stream = upstreams.stream('x');
    if (stream === null) throw new Error('no stream');
    const get = async (): Promise<string> => (await stream.request({ path: '/', method: 'GET' })).body.text();
    expect(await get()).toBe('ok');
    await expect(get()).rejects.toThrow();
    expect(requests).toBe(2);
    await upstreams.close();
    server.close();
    await once(server, 'close');
  });
});

/** Opens a tunnel by hand; resolves with the answer's head and the socket. */
async function upgrade(path: string, headers: readonly string[]): Promise<{ head: string; socket: Socket }> {
  const { hostname, port } = new URL(world.url);
  const socket = connect(Number(port), hostname);
  socket.setEncoding('latin1');
  socket.on('error', () => {});
  const lines = [
    `GET ${path} HTTP/1.1`,
    `Host: ${hostname}:${port}`,
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    ...headers,
    '',
    '',
  ];
  socket.write(lines.join('\r\n'));
  let head = '';
  while (!head.includes('\r\n\r\n')) {
    const [chunk] = (await Promise.race([once(socket, 'data'), once(socket, 'close').then(() => [null])])) as [
      string | null,
    ];
    if (chunk === null) break;
    head += chunk;
  }
  return { head, socket };
}

test('a read whose caller leaves is one short line of the log, and an access without an answer', async () => {
  await world.upstream.mode({ mode: 'never', times: 1, path: '/v1/orders/o9' });
  const before = await arrived();
  const lines = world.log.length;
  const { hostname, port } = new URL(world.url);
  const socket = connect(Number(port), hostname);
  socket.write(`GET /shop/v1/orders/o9 HTTP/1.1\r\nhost: ${hostname}\r\nx-api-key: ${world.keys.bot}\r\n\r\n`);
  await until(async () => (await arrived()) > before);
  socket.destroy();
  const said = () => world.log.slice(lines);
  await until(() => said().length > 0);
  expect(said().map((line) => JSON.parse(line))).toEqual([
    expect.objectContaining({ level: 'warn', err: expect.objectContaining({ name: 'CallerGone' }) }),
  ]);
  expect(said().join('').length).toBeLessThan(400);
  const unanswered = expect.objectContaining({ method: 'GET', tool: 'orders.get', status: 499, cut: true });
  await expect.poll(() => world.accessed).toContainEqual(unanswered);
});

describe('tunnels', () => {
  test('pass where a rule says so, without keys, cookies or the upstream’s', async () => {
    const { bot } = world.keys;
    const { head, socket } = await upgrade('/shop/v1/stream', [
      `X-API-Key: ${bot}`,
      'Cookie: a=canary-cookie',
      'Origin: ' + world.url,
      `Sec-WebSocket-Protocol: chat, ${bot}`,
    ]);
    expect(head).toMatch(/^HTTP\/1\.1 101 /);
    expect(head.toLowerCase()).not.toContain('set-cookie');
    socket.write('frames are not looked into');
    const [echo] = (await once(socket, 'data')) as [string];
    expect(echo).toBe('frames are not looked into');
    const last = (await world.upstream.ledger()).requests.findLast(({ event }) => event === 'upgrade');
    expect(last?.url).toBe('/v1/stream');
    expect(JSON.stringify(last?.raw_headers)).not.toContain(bot);
    expect(JSON.stringify(last?.raw_headers)).not.toContain('canary-cookie');
    expect(last?.headers['x-upstream-token']).toBe('shop-token-7');
    socket.destroy();
    await once(socket, 'close');
  });

  test.each([
    ['without a key', '/shop/v1/stream', [], 401],
    ['where no rule says so', '/shop/v1/orders/o1', ['key'], 403],
    ['on an undeclared route', '/open/v1/x', ['key'], 403],
    ['on a path with tricks', '/shop/v1/%2e%2e/stream', ['key'], 400],
    ['on the gateway’s own paths', '/livez', ['key'], 400],
  ] as const)('are refused %s', async (_name, path, headers, status) => {
    const before = await arrived();
    const { head, socket } = await upgrade(
      path,
      headers.map(() => `X-API-Key: ${world.keys.bot}`),
    );
    expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    socket.destroy();
    expect(await arrived()).toBe(before);
  });

  test('are refused while paused, and cut by a pause', async () => {
    const open = await upgrade('/shop/v1/stream', [`X-API-Key: ${world.keys.bot}`]);
    expect(open.head).toMatch(/ 101 /);
    const closed = once(open.socket, 'close');
    const lift = await world.pause('orders.stream');
    await closed;
    const refused = await upgrade('/shop/v1/stream', [`X-API-Key: ${world.keys.bot}`]);
    expect(refused.head).toMatch(/^HTTP\/1\.1 423 /);
    await lift();
  });

  test('are counted once under a rule in shadow mode, however often they are looked at again', async () => {
    const before = world.shadowed.length;
    const open = await upgrade('/shop/v1/stream', [`X-API-Key: ${world.keys.bot}`]);
    expect(open.head).toMatch(/ 101 /);
    const closed = once(open.socket, 'close');
    // Each change of pauses has whatever is open judged again; the last one cuts it.
    const changes = [await world.pause('some.other'), await world.pause('orders.stream')];
    await closed;
    for (const lift of changes) await lift();
    expect(world.shadowed.slice(before)).toEqual(['proxied/tried']);
  });

  test('are cut when the key is revoked', async () => {
    const fresh = await world.freshBot();
    const open = await upgrade('/shop/v1/stream', [`X-API-Key: ${fresh.key}`]);
    expect(open.head).toMatch(/ 101 /);
    const closed = once(open.socket, 'close');
    await fresh.revoke();
    await closed;
  });
});

test('a read that is over is not judged again', async () => {
  const fresh = await world.freshBot();
  const read = await fetch(`${world.url}/shop/v1/orders/o1`, { headers: { 'x-api-key': fresh.key } });
  await read.text();
  const known = world.identified.filter((key) => key === fresh.key).length;
  expect(known).toBeLessThanOrEqual(1);
  // Each change of pauses has whatever is open judged again, at once.
  await (await world.pause('some.other'))();
  expect(world.identified.filter((key) => key === fresh.key)).toHaveLength(known);
});

test('a tunnel that is over is not judged again', async () => {
  const fresh = await world.freshBot();
  const { head, socket } = await upgrade('/shop/v1/stream', [`X-API-Key: ${fresh.key}`]);
  expect(head).toMatch(/ 101 /);
  socket.destroy();
  const judged = (): number => world.identified.filter((key) => key === fresh.key).length;
  await until(async () => {
    const before = judged();
    await (await world.pause('some.other'))();
    return judged() === before;
  });
});

test('a read that streams is cut when its key is revoked', async () => {
  const fresh = await world.freshBot();
  const before = await arrived();
  const reading = fetch(`${world.url}/shop/v1/orders/o1?mode=never`, { headers: { 'x-api-key': fresh.key } });
  await until(async () => (await arrived()) > before);
  // It may be cut before the revocation is answered.
  const cut = expect(reading).rejects.toThrow();
  await fresh.revoke();
  await cut;
});
