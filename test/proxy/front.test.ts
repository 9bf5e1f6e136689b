import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ConnectionCap } from '../../src/api/listeners.ts';
import { Front } from '../../src/api/front.ts';
import { type ProxiedWorld, rawExchange, startProxiedWorld } from './gateway.ts';

let world: ProxiedWorld;
beforeAll(async () => {
  world = await startProxiedWorld();
});
afterAll(() => world.close());

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: readonly string[];
  readonly body?: string | null;
  /** How often the same is sent; the last answer counts. */
  readonly times?: number;
}

let counter = 0;

/** Everything that comes on a connection until its answer is over, with what differs each time made equal. */
async function bytesOf(sent: Sent, extra: readonly string[]): Promise<string> {
  const { method = 'POST', path = '/shop/v1/shops/s1/orders', headers = [], body = '{"amount":5}', times = 1 } = sent;
  counter += 1;
  const key = `front-${counter}`;
  let text = '';
  for (let time = 0; time < times; time += 1) {
    const { hostname, port } = new URL(world.url);
    const socket = connect(Number(port), hostname);
    const chunks: Buffer[] = [];
    socket.on('data', (chunk) => void chunks.push(chunk)).on('error', () => undefined);
    // What is never answered is told by that, and does not hold up the end of the test.
    socket.setTimeout(15_000, () => socket.destroy());
    const typed = body === null || headers.some((line) => /^content-type:/i.test(line));
    const head = [
      `${method} ${path} HTTP/1.1`,
      `host: ${hostname}:${port}`,
      `x-api-key: ${world.keys.bot}`,
      ...(headers.some((line) => /^idempotency-key:/i.test(line)) ? [] : [`idempotency-key: ${key}`]),
      ...(typed ? [] : ['content-type: application/json']),
      ...(body === null ? [] : [`content-length: ${Buffer.byteLength(body)}`]),
      ...headers.filter((line) => !/^(?:idempotency-key|content-type): -$/i.test(line)),
      ...extra,
      'connection: close',
    ];
    socket.write(`${head.join('\r\n')}\r\n\r\n${body ?? ''}`);
    await once(socket, 'close');
    text = Buffer.concat(chunks).toString('latin1');
  }
  return text
    .replaceAll(key, 'KEY')
    .replaceAll(/\b(req|eff|rcp|apr)_[0-9a-z]{26}/g, '$1')
    .replaceAll(/date: [^\r]*/gi, 'date')
    .replaceAll(/eyJ[\w.-]*/g, 'JWS')
    .replaceAll(/\bef_\d+|\bsc1:[\w-]+|"seq":\d+/g, 'N')
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]*Z/g, 'TIME')
    .replaceAll(/"(?:n|nth|request|effects?)":\d+/g, 'N')
    .replaceAll(/content-length: \d+/gi, 'LENGTH');
}

const READ = { method: 'GET', body: null } as const;
const ORDER = '/shop/v1/orders/o1';

/** The router answers a request that says where its answer is to go; the front leaves such requests to it. */
const ROUTED = ['sec-fetch-dest: empty'];

describe('what goes past the router is answered as the router answers it, to the byte', () => {
  const same: Readonly<Record<string, Sent>> = {
    committed: {},
    'committed, without a body': { method: 'POST', path: '/shop/v1/shops/s1/orders', body: null },
    'refused by the upstream': { body: '{"amount":5,"note":"mode:refuse"}' },
    'an answer without content': { body: '{"amount":5,"note":"mode:empty"}' },
    'an answer that is no JSON': { body: '{"amount":5,"note":"mode:plain"}' },
    'a redirect': { body: '{"amount":5,"note":"mode:redirect"}' },
    'an upstream that breaks off': { body: '{"amount":5,"note":"mode:drop_after"}' },
    'headers of one connection': { body: '{"amount":5,"note":"mode:loud"}' },
    denied: { body: '{"amount":5000}' },
    'a duplicate': { times: 2 },
    'a duplicate that is replayed': { path: '/shop/v1/notes', body: '{"text":"x"}', times: 2 },
    'without an idempotency key': { headers: ['idempotency-key: -'] },
    'no JSON': { body: '{"amount":' },
    'JSON of another shape': { body: '{"amount":"x"}' },
    'another media type': { headers: ['content-type: text/plain'] },
    'no media type': { headers: ['content-type: -'] },
    'a media type that cannot be read': { headers: ['content-type: json'] },
    'a foreign charset': { headers: ['content-type: application/json; charset=latin1'] },
    'a coding that nobody has': { headers: ['content-encoding: zstd'] },
    'the key in the query too': { path: '/shop/v1/shops/s1/orders?api_key=KEY' },
    'a query of two meanings': { path: '/shop/v1/shops/s1/orders?dry=true&DRY=false' },
    'no rule': { path: '/shop/v1/nothing' },
    'no route': { path: '/nowhere/at/all' },
    'one of the gateway’s own paths': { path: '/v1/nothing' },
    'another method': { method: 'PUT' },
    'a read': { ...READ, path: `${ORDER}?limit=10` },
    'a read whose query is encoded': { ...READ, path: `${ORDER}?mode=%6Cist` },
    'a read that the upstream refuses': { ...READ, path: `${ORDER}?mode=refuse` },
    'a read without content': { ...READ, path: `${ORDER}?mode=empty` },
    'a read that is redirected': { ...READ, path: `${ORDER}?mode=redirect` },
    'a read with headers of one connection': { ...READ, path: `${ORDER}?mode=loud` },
    'a read whose upstream breaks off': { ...READ, path: `${ORDER}?mode=drop_before` },
    'a read that does not fit its tool': { ...READ, path: `${ORDER}?limit=x` },
    'a read that policy denies': { ...READ, path: '/shop/v1/secret' },
    'a read of a path that is encoded': { ...READ, path: '/shop/v1/orders/o%31' },
    'a read with a fragment': { ...READ, path: `${ORDER}#part` },
    'a read that no tool declares': { ...READ, path: '/open/v1/any' },
    'a read that no tool declares, nor its route': { ...READ, path: '/shop/v1/any' },
    'a read in which links are rewritten': { ...READ, path: '/linked/v1/any' },
    'a read with the key in the query': { ...READ, path: `${ORDER}?api_key=KEY` },
    'a read with a body': { ...READ, path: ORDER, body: '{}' },
    'a read by POST': { path: '/shop/v1/search', body: '{"q":"x"}' },
    'a read by POST without a body': { ...READ, method: 'POST', path: '/shop/v1/search' },
    'a read of the head': { ...READ, method: 'HEAD', path: ORDER },
    'a write by GET': { ...READ, path: '/open/v1/trigger' },
    'one of the gateway’s own pages': { ...READ, path: '/livez' },
    'another Host': { headers: ['host: example.com'] },
    'another Origin': { headers: ['origin: https://example.com'] },
  };

  test.each(Object.entries(same))('%s', async (_name, sent) => {
    await world.upstream.state('/v1/orders/o1', { id: 'o1' });
    const straight = await bytesOf(sent, []);
    expect(straight).toMatch(/^HTTP\/1\.1 \d{3} /);
    expect(straight).toBe(await bytesOf(sent, ROUTED));
  });
});

test('a read that policy lets pass does not come to the router, and one line of the log tells of it', async () => {
  const before = world.routed.length;
  const answer = await fetch(`${world.url}${ORDER}?mode=list`, { headers: { 'x-api-key': world.keys.bot } });
  const body = await answer.text();
  expect(world.routed).toHaveLength(before);
  const lines = () => world.accessed.filter(({ requestId }) => requestId === answer.headers.get('x-request-id'));
  await expect.poll(lines).toMatchObject([
    {
      method: 'GET',
      tool: 'orders.get',
      decision: 'committed',
      effectId: null,
      status: 200,
      lasts: false,
      cut: false,
    },
  ]);
  expect(lines()[0]?.bytesOut).toBeGreaterThan(body.length);
});

test('of a read that no tool declares the log says to which upstream it went, and for whom', async () => {
  for (const extra of [{}, { 'sec-fetch-dest': 'empty' }]) {
    const headers = { 'x-api-key': world.keys.account, 'svc-agent-id': 'bot', ...extra };
    const answer = await fetch(`${world.url}/open/v1/any`, { headers });
    await answer.text();
    const id = answer.headers.get('x-request-id');
    await expect
      .poll(() => world.accessed.filter(({ requestId }) => requestId === id))
      .toMatchObject([{ tool: null, upstream: 'open', workspace: 'demo', agentId: 'bot' }]);
  }
});

test('a read past the router waits for its place', async () => {
  let sent = -1;
  world.beforePlace(async () => {
    const before = (await world.upstream.counts()).requests;
    await sleep(200);
    sent = (await world.upstream.counts()).requests - before;
  });
  const answer = await fetch(`${world.url}${ORDER}`, { headers: { 'x-api-key': world.keys.bot } });
  expect([answer.status, sent]).toEqual([200, 0]);
});

test.each([
  ['past the router', ''],
  ['through the router', `${ROUTED[0]}\r\n`],
])('reads whose caller has left give back their places, also those behind another one: %s', async (_way, extra) => {
  const { host, hostname, port } = new URL(world.url);
  const of = world.accessed.length;
  const socket = connect(Number(port), hostname).on('error', () => undefined);
  const head = `host: ${host}\r\nx-api-key: ${world.keys.bot}\r\n${extra}`;
  socket.write(`GET ${ORDER}?mode=never HTTP/1.1\r\n${head}\r\n`.repeat(10));
  await expect.poll(() => world.placed()).toBe(10);
  socket.destroy();
  await expect.poll(() => world.placed()).toBe(0);
  await expect
    .poll(() => world.accessed.slice(of).map(({ status, cut }) => `${status} ${cut}`))
    .toEqual(Array(10).fill('499 true'));
});

test('a read whose key ends while it waits for its place is not sent', async () => {
  const fresh = await world.freshBot();
  const before = (await world.upstream.counts()).requests;
  world.beforePlace(async () => {
    await fresh.revoke();
    await sleep(1_000);
  });
  await expect(fetch(`${world.url}${ORDER}`, { headers: { 'x-api-key': fresh.key } })).rejects.toThrow('fetch failed');
  expect((await world.upstream.counts()).requests).toBe(before);
  expect(world.placed()).toBe(0);
});

test('a read past the router that has its key in the query is called deprecated', async () => {
  const answer = await fetch(`${world.url}${ORDER}?api_key=${world.keys.bot}`);
  expect([answer.status, answer.headers.get('deprecation')]).toEqual([200, '@1767225600']);
});

test.each(['/', '/?a=b', '/livez'])('one of the gateway’s own pages is no call: %s', async (page) => {
  const answer = await fetch(`${world.url}${page}`, { headers: { 'x-api-key': world.keys.bot } });
  await fetch(`${world.url}${ORDER}`, { headers: { 'x-api-key': world.keys.bot } }).then((read) => read.text());
  await expect.poll(() => world.accessed.at(-1)).toMatchObject({ tool: 'orders.get' });
  expect(await answer.json()).toEqual({ own: true });
  expect(world.accessed.map(({ requestId }) => requestId)).not.toContain(answer.headers.get('x-request-id'));
});

test('a stream of events past the router does not hold up a stop', { timeout: 15_000 }, async () => {
  const own = await startProxiedWorld();
  const read = await fetch(`${own.url}/open/v1/any?mode=stall`, { headers: { 'x-api-key': own.keys.bot } });
  expect(read.headers.get('content-type')).toMatch(/^text\/event-stream/);
  await Promise.all([own.close(), expect(read.text()).rejects.toThrow('terminated')]);
});

test.each([
  ['straight', '', []],
  ['straight, and answered by the router', 'mode:empty', []],
  ['through the router', '', ROUTED],
])('one line of the log tells of a write, whichever way it goes: %s', async (way, note, extra) => {
  const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
  const body = JSON.stringify({ amount: 5, note });
  const head = [
    'POST /shop/v1/shops/s1/orders HTTP/1.1',
    `host: ${new URL(world.url).host}`,
    `x-api-key: ${world.keys.bot}`,
    `idempotency-key: line-${way.length}`,
    'content-type: application/json',
    `content-length: ${body.length}`,
    `traceparent: 00-${trace}-00f067aa0ba902b7-01`,
    ...extra,
    'connection: close',
  ];
  const sent = `${head.join('\r\n')}\r\n\r\n${body}`;
  const began = performance.now();
  const text = await rawExchange(world.url, sent);
  const found = (name: string) => new RegExp(`^${name}: (\\S+)`, 'im').exec(text)?.[1];
  const lines = () => world.accessed.filter(({ requestId }) => requestId === found('x-request-id'));
  await expect.poll(lines).toMatchObject([
    {
      method: 'POST',
      workspace: 'demo',
      agentId: 'bot',
      tool: 'orders.create',
      upstream: 'shop',
      authenticatedInMs: expect.any(Number),
      decision: 'committed',
      effectId: found('svc-effect-id'),
      traceId: trace,
      bytesIn: sent.length,
      bytesOut: text.length,
      lasts: false,
      cut: false,
    },
  ]);
  const { durationMs = 0, authenticatedInMs } = lines()[0] ?? {};
  expect(durationMs).toBeGreaterThan(authenticatedInMs ?? 0);
  expect(durationMs).toBeLessThan(performance.now() - began);
});

test.each([
  ['a look-up of its key', 'identify', {}],
  ['a look-up of the key of a read', 'identify', { ...READ, path: ORDER }],
  ['its run', 'run', {}],
  ['its run, without a body', 'run', { body: null, path: '/open/v1/trigger', method: 'GET' }],
] as const)(
  '%s that fails is answered as the router answers it, and is no end of the gateway',
  async (_name, what, sent) => {
    const failed = async (extra: readonly string[]): Promise<string> => {
      world.failNext(what);
      return bytesOf(sent, extra);
    };
    const straight = await failed([]);
    expect(straight).toMatch(/^HTTP\/1\.1 500 [^]*"code":"internal/);
    expect(straight).not.toContain('planted');
    expect(straight).toBe(await failed(ROUTED));
    expect(await bytesOf({}, [])).toMatch(/^HTTP\/1\.1 201 /);
  },
);

test('a read that fails while it waits for its place is answered', async () => {
  world.beforePlace(() => Promise.reject(new Error('planted')));
  expect(await bytesOf({ ...READ, path: ORDER }, [])).toMatch(/^HTTP\/1\.1 500 /);
  expect(await bytesOf({ ...READ, path: ORDER }, [])).toMatch(/^HTTP\/1\.1 200 /);
});

test('while the gateway closes, a write on a connection that is open is refused', async () => {
  const own = await startProxiedWorld();
  const { hostname, port } = new URL(own.url);
  const socket = connect(Number(port), hostname);
  let text = '';
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1');
  });
  const write = (key: string): void => {
    const head = `POST /shop/v1/shops/s1/orders HTTP/1.1\r\nhost: ${hostname}:${port}\r\nx-api-key: ${own.keys.bot}\r\nidempotency-key: ${key}`;
    socket.write(`${head}\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{"amount":5}`);
  };
  /** Both ends are in this process: what was written is read by then, and what was begun is under way. */
  const turns = async (): Promise<void> => {
    for (let turn = 0; turn < 50; turn += 1) await setImmediate();
  };
  let closing = Promise.resolve();
  own.beforeSend(async () => {
    closing = own.close();
    await turns();
    write('second');
    await turns();
  });
  write('first');
  await once(socket, 'close');
  await closing;
  const [, first = '', second = ''] = text.split('HTTP/1.1 ');
  expect([first.slice(0, 3), second.slice(0, 3)]).toEqual(['201', '503']);
  expect(second).toContain('"code":"not_ready"');
});

const TEXT = { 'content-type': 'application/json; charset=utf-8' };

test('an answer that goes past the router ends its connection where the gateway stops, and says so', async () => {
  const server = createServer(() => undefined);
  let heard = 0;
  // As the cap on connections does, which leaves those with a request under way open.
  server.on('request', () => (heard += 1));
  let isStopping = false;
  const front = new Front(server, new Map(), {
    isOverloaded: () => false,
    refused: () => ({ status: 503, headers: TEXT, body: '{}' }),
    admits: () => true,
    newId: () => 'req_1',
    isStopping: () => isStopping,
    shouldRetry: () => false,
    answered: () => undefined,
  });
  front.take((request, response, requestId) => {
    request.resume();
    front.answer(response, requestId, { status: 200, headers: TEXT, body: '{}' });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const socket = connect(port, '127.0.0.1');
  const answer = async (): Promise<string> => {
    socket.write('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n');
    return String(((await once(socket, 'data')) as [Buffer])[0]);
  };
  expect(await answer()).toMatch(/^connection: keep-alive\r$/im);
  isStopping = true;
  const closed = once(socket, 'close');
  expect(await answer()).toMatch(/^connection: close\r$/im);
  await closed;
  expect(heard).toBe(2);
  server.close();
});

test('only what is plain goes past the router: what it would look at further, it gets', async () => {
  const routed: string[] = [];
  const server = createServer((request, response) => {
    routed.push(request.url ?? '');
    response.end();
  });
  const front = new Front(server, new Map(), {
    isOverloaded: () => false,
    refused: () => null,
    admits: ({ headers }) => headers['x-odd'] === undefined,
    newId: () => 'req_1',
    isStopping: () => false,
    shouldRetry: () => false,
    answered: () => undefined,
  });
  const taken: string[] = [];
  front.take((request, response) => {
    taken.push(request.url ?? '');
    response.end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const send = async (path: string, method = 'POST', headers = {}): Promise<void> => {
    const asked = request({ port, host: '127.0.0.1', path, method, headers, agent: false }).end();
    const [answer] = await once(asked, 'response');
    answer.resume();
    await once(answer, 'end');
  };
  for (const method of ['DELETE', 'GET', 'PATCH', 'POST', 'PUT']) await send(`/${method}`, method);
  await send('/typed', 'POST', { 'content-type': 'application/json; charset=utf-8' });
  await send('/query?a=%20&b=/', 'GET');
  expect(taken.splice(0)).toEqual(['/DELETE', '/GET', '/PATCH', '/POST', '/PUT', '/typed', '/query?a=%20&b=/']);
  await send('/head', 'HEAD');
  await send('/part#?a', 'GET');
  await send('/query?a#b', 'GET');
  await send('/options', 'OPTIONS');
  await send('/a%2Fb');
  await send('/page', 'POST', { 'sec-fetch-dest': 'document' });
  await send('/odd-type', 'POST', { 'content-type': 'json' });
  await send('/odd', 'POST', { 'x-odd': '1' });
  expect([routed, taken]).toEqual([
    ['/head', '/part#?a', '/query?a#b', '/options', '/a%2Fb', '/page', '/odd-type', '/odd'],
    [],
  ]);
  server.close();
});

test('of requests that arrive together on one connection, so many are served; one is refused, and the connection ends', async () => {
  let served = 0;
  const counted: string[] = [];
  const server = createServer((_request, response) => {
    served += 1;
    response.end('served');
  });
  new Front(server, new ConnectionCap(server, 10).underWay, {
    isOverloaded: () => false,
    refused: () => ({ status: 503, headers: TEXT, body: '{}' }),
    admits: () => false,
    newId: () => 'req_1',
    isStopping: () => false,
    shouldRetry: () => false,
    answered: (method, status) => counted.push(`${method} ${status}`),
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const socket = connect(port, '127.0.0.1');
  // Whoever waits for each answer may go on for ever.
  for (let turn = 0; turn < 40; turn += 1) {
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    await once(socket, 'data');
  }
  expect(served).toBe(40);
  let answers = '';
  socket.on('data', (chunk) => (answers += String(chunk)));
  socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(1000));
  await once(socket, 'close');
  expect(served).toBe(40 + 32);
  expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual([...Array(32).fill('HTTP/1.1 200'), 'HTTP/1.1 503']);
  // Whoever looks at the metrics sees that something was refused.
  expect(counted).toEqual(['GET 503']);
  expect(answers.slice(answers.indexOf('HTTP/1.1 503'))).toMatch(/^connection: close\r$/im);
  server.close();
});

test('so are those that expect what nobody offers, which no router sees', async () => {
  const { hostname, port } = new URL(world.url);
  const socket = connect(Number(port), hostname);
  let answers = '';
  socket.on('data', (chunk) => (answers += String(chunk)));
  socket.write(`GET /livez HTTP/1.1\r\nhost: ${hostname}:${port}\r\nexpect: nothing\r\n\r\n`.repeat(100));
  await once(socket, 'close');
  expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual([...Array(32).fill('HTTP/1.1 417'), 'HTTP/1.1 503']);
});
