import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ProxiedWorld, rawExchange, startProxiedWorld } from './gateway.ts';

let world: ProxiedWorld;
beforeAll(async () => {
  world = await startProxiedWorld();
});
afterAll(() => world.close());

/** Sends raw bytes, `<KEY>` and `HOST` filled in; gives the answers' statuses and what arrived upstream. */
async function raw(
  text: string,
  waitMs = 10_000,
): Promise<{ statuses: number[]; urls: string[]; effects: number; got: string }> {
  const before = await world.upstream.ledger();
  const { host } = new URL(world.url);
  const got = await rawExchange(world.url, text.replaceAll('<KEY>', world.keys.bot).replaceAll('HOST', host), waitMs);
  const after = await world.upstream.ledger();
  return {
    statuses: [...got.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status)),
    urls: after.requests.slice(before.requests.length).map(({ url }) => url),
    effects: after.effects.length - before.effects.length,
    got,
  };
}

const WRITE = 'POST /shop/v1/notes HTTP/1.1\r\nHost: HOST\r\nX-API-Key: <KEY>\r\nContent-Type: application/json\r\n';
/** As Java's client asks of every server without TLS; such a request is read twice. */
const WISH =
  'Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\nUpgrade: h2c\r\n';
const SMUGGLED = 'GET /v1/admin HTTP/1.1\r\nHost: HOST\r\n\r\n';
let counter = 0;
function keyLine(): string {
  counter += 1;
  return `Idempotency-Key: raw-${counter}\r\n`;
}

describe.each([
  ['', ''],
  [' (with a wish for h2c)', WISH],
])('framing%s: the upstream sees one request, or none', (_wish, wish) => {
  const BODY = '{"text":"a"}';
  const CHUNKED = `c\r\n${BODY}\r\n0\r\n\r\n`;
  test.each([
    ['length and chunked', `Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n${CHUNKED}`],
    ['chunked and length', `Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n${CHUNKED}${SMUGGLED}`],
    ['two lengths that differ', `Content-Length: 12\r\nContent-Length: 0\r\n\r\n${BODY}${SMUGGLED}`],
    ['two lengths that agree', `Content-Length: 12\r\nContent-Length: 12\r\n\r\n${BODY}`],
    ['a list of lengths', `Content-Length: 12, 0\r\n\r\n${BODY}`],
    ['a length with a sign', `Content-Length: +12\r\n\r\n${BODY}`],
    ['a negative length', `Content-Length: -1\r\n\r\n${BODY}`],
    ['a length in hex', `Content-Length: 0xc\r\n\r\n${BODY}`],
    ['a space before the colon', `Content-Length : 12\r\n\r\n${BODY}`],
    ['a folded header', `X-A: b\r\n Content-Length: 12\r\n\r\n${BODY}`],
    ['a coding that is not chunked', `Transfer-Encoding: identity\r\n\r\n${CHUNKED}`],
    ['chunked in disguise', `Transfer-Encoding: xchunked\r\n\r\n${CHUNKED}`],
    ['chunked after another coding', `Transfer-Encoding: gzip, chunked\r\n\r\n${CHUNKED}`],
    ['chunked twice', `Transfer-Encoding: chunked, chunked\r\n\r\n${CHUNKED}`],
    ['two codings', `Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n${CHUNKED}`],
    ['a tab in the coding', `Transfer-Encoding:\u000bchunked\r\n\r\n${CHUNKED}`],
    ['a chunk size that is none', `Transfer-Encoding: chunked\r\n\r\nzz\r\n${BODY}\r\n0\r\n\r\n`],
    ['a chunk size with a sign', `Transfer-Encoding: chunked\r\n\r\n+c\r\n${BODY}\r\n0\r\n\r\n`],
    ['a NUL in a header', `X-A: a\u0000b\r\nContent-Length: 12\r\n\r\n${BODY}`],
    ['a bare line feed', `X-A: a\nX-B: b\r\nContent-Length: 12\r\n\r\n${BODY}`],
    ['a bare carriage return', `X-A: a\rX-B: b\r\nContent-Length: 12\r\n\r\n${BODY}`],
    ['a header without a name', `: x\r\nContent-Length: 12\r\n\r\n${BODY}`],
    ['a header without a colon', `nothing\r\nContent-Length: 12\r\n\r\n${BODY}`],
  ])('%s', async (_name, rest) => {
    const { statuses, urls, effects } = await raw(`${WRITE}${wish}${keyLine()}${rest}`);
    expect(urls.filter((url) => url !== '/v1/notes')).toEqual([]);
    expect(effects).toBeLessThanOrEqual(1);
    expect(statuses.filter((status) => status < 400)).toEqual([]);
    expect(urls).toEqual([]);
  });

  test('one good request, by length and chunked, and two on one connection', async () => {
    const length = await raw(`${WRITE}${wish}${keyLine()}Content-Length: 12\r\n\r\n${BODY}`);
    expect([length.statuses, length.urls]).toEqual([[201], ['/v1/notes']]);
    const chunked = await raw(`${WRITE}${wish}${keyLine()}Transfer-Encoding: chunked\r\n\r\n${CHUNKED}`);
    expect([chunked.statuses, chunked.urls]).toEqual([[201], ['/v1/notes']]);
  });

  test('chunked in HTTP/1.0, which does not have it: refused, and nothing behind it is read', async () => {
    const old = WRITE.replace('HTTP/1.1', 'HTTP/1.0');
    for (const connection of ['', 'Connection: keep-alive\r\n']) {
      const rest = `${keyLine()}Transfer-Encoding: chunked\r\n\r\n${CHUNKED}${SMUGGLED}`;
      const { statuses, urls, got } = await raw(`${old}${connection}${wish}${rest}`);
      expect([statuses.filter((status) => status !== 400), urls]).toEqual([[], []]);
      expect(got.toLowerCase()).toContain('connection: close');
      expect(got).toContain('HTTP/1.0 has no Transfer-Encoding');
    }
    const length = await raw(`${old}${wish}${keyLine()}Content-Length: 12\r\n\r\n${BODY}`);
    expect([length.statuses, length.urls]).toEqual([[201], ['/v1/notes']]);
  });

  test('a body that goes on as another request is that body’s end, not a request to the upstream', async () => {
    const { urls } = await raw(`${WRITE}${wish}${keyLine()}Content-Length: 12\r\n\r\n${BODY}${SMUGGLED}`);
    expect(urls).toEqual(['/v1/notes']);
  });

  test('a GET with a body is refused', async () => {
    const get = 'GET /shop/v1/orders/o1 HTTP/1.1\r\nHost: HOST\r\nX-API-Key: <KEY>\r\n';
    const withLength = await raw(`${get}${wish}Content-Length: ${SMUGGLED.length}\r\n\r\n${SMUGGLED}`);
    expect([withLength.statuses[0], withLength.urls]).toEqual([400, []]);
    const chunked = await raw(`${get}${wish}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`);
    expect([chunked.statuses[0], chunked.urls]).toEqual([400, []]);
  });

  test('a body that does not come whole runs nothing', async () => {
    const { urls, statuses } = await raw(`${WRITE}${wish}${keyLine()}Content-Length: 100\r\n\r\n${BODY}`, 1500);
    expect([urls, statuses]).toEqual([[], []]);
  });
});

describe('path tricks: refused before a route is matched', () => {
  test.each([
    '/shop/v1/../v1/orders/o1',
    '/shop/v1/orders/..',
    '/shop/../shop/v1/orders/o1',
    '/shop/./v1/orders/o1',
    '/shop/v1/orders/%2e%2e',
    '/shop/v1/%2E%2E/orders/o1',
    '/shop/v1/orders/..%2fo1',
    '/shop/v1/orders/a%2fb',
    '/shop/v1/orders/a%5cb',
    '/shop/v1/orders/a\\b',
    '/shop//v1/orders/o1',
    '/shop/v1//orders/o1',
    '/shop/v1/orders/a%00',
    '/shop/v1/orders/..;/x',
    '/shop/v1/orders/o1;a=b',
    '/shop/v1;x/orders/o1',
    '/open/v1/hidden;/1',
    '/shop/v1/orders/a%0d%0aX-Evil:%201',
    '/shop/v1/orders/%c0%ae',
    '/shop/v1/orders/%',
    '/shop/v1/orders/a"b',
    '/shop/v1/orders/{a}',
  ])('%s', async (path) => {
    const { statuses, urls, got } = await raw(
      `GET ${path} HTTP/1.1\r\nHost: HOST\r\nX-API-Key: <KEY>\r\nConnection: close\r\n\r\n`,
    );
    expect([statuses, urls]).toEqual([[400], []]);
    expect(got).toContain('x-should-retry: false');
  });

  test.each([
    'http://evil/shop/v1/orders/o1',
    '//evil/shop/v1/orders/o1',
    '/%73hop/v1/orders/o1',
    '*',
    'shop/v1/orders/o1',
    '/shop/v1/orders/a\u0000',
    '/shop/v1/orders/é',
    '/shop/v1/orders/a b',
  ])('%s reaches nobody', async (path) => {
    const { statuses, urls } = await raw(
      `GET ${path} HTTP/1.1\r\nHost: HOST\r\nX-API-Key: <KEY>\r\nConnection: close\r\n\r\n`,
    );
    expect(urls).toEqual([]);
    expect(statuses.every((status) => status >= 400)).toBe(true);
  });

  test.each([
    ['GET', '/open/v1/hidden/1'],
    ['GET', '/open/v1/HIDDEN/1'],
    ['GET', '/open/v1/hidden/1/'],
    ['HEAD', '/open/V1/hidden/1/'],
    ['GET', '/open/v1/%48idden/1'],
    ['HEAD', '/open/v1/trigger'],
    ['GET', '/open/v1/trigger/'],
    ['GET', '/open/v1/hidden./1'],
    ['GET', '/open/v1./hidden/1'],
    ['GET', '/open/v1/hidden%20/1'],
    ['GET', '/open/v1/%20hidden/1'],
    ['GET', '/open/v1/hidden%C2%A0/1'],
    ['HEAD', '/open/v1/hidden..%20/1'],
    ['GET', '/open/v1/%2568idden/1'],
    ['GET', '/open/v1/hidden%252f1'],
    ['GET', '/open/v1/x%252e%252e%252fhidden/1'],
    ['GET', '/open/v1/%EF%BD%88idden/1'],
  ])('a rule is not passed by through what many servers take for the same: %s %s', async (method, path) => {
    const { statuses, urls } = await raw(
      `${method} ${path} HTTP/1.1\r\nHost: HOST\r\nX-API-Key: <KEY>\r\nConnection: close\r\n\r\n`,
    );
    expect([statuses, urls]).toEqual([[403], []]);
  });

  test('what every server reads alike passes, dots, spaces and per cent signs included', async () => {
    for (const path of ['/v1/a.b/c%20d', '/v1/100%25', '/v1/.well/', '/v1/a%25zz']) {
      const { statuses, urls } = await raw(
        `GET /open${path} HTTP/1.1\r\nHost: HOST\r\nX-API-Key: <KEY>\r\nConnection: close\r\n\r\n`,
      );
      expect([statuses, urls]).toEqual([[200], [path]]);
    }
  });

  test('override headers override nothing', async () => {
    const overrides = [
      'X-HTTP-Method-Override: DELETE',
      'X-Method-Override: DELETE',
      'X-Original-URL: /admin',
      'X-Rewrite-URL: /admin',
    ];
    const { statuses, urls } = await raw(
      `GET /shop/v1/orders/o1 HTTP/1.1\r\nHost: HOST\r\nX-API-Key: <KEY>\r\n${overrides.join('\r\n')}\r\nConnection: close\r\n\r\n`,
    );
    expect([statuses, urls]).toEqual([[200], ['/v1/orders/o1']]);
    const last = (await world.upstream.ledger()).requests.at(-1);
    expect(Object.keys(last?.headers ?? {}).filter((name) => /override|original|rewrite/.test(name))).toEqual([]);
  });
});

test('a request that would carry its own key on is refused', async () => {
  const { bot } = world.keys;
  for (const request of [
    `GET /open/v1/any?token=${bot} HTTP/1.1\r\nX-API-Key: ${bot}\r\n`,
    `GET /open/v1/${bot} HTTP/1.1\r\nX-API-Key: ${bot}\r\n`,
    `GET /open/v1/any HTTP/1.1\r\nX-API-Key: ${bot}\r\nUser-Agent: agent ${bot}\r\n`,
    `GET /open/v1/any?token=%73${bot.slice(1)} HTTP/1.1\r\nX-API-Key: ${bot}\r\n`,
    `GET /open/v1/any?%73${bot.slice(1)}=1 HTTP/1.1\r\nX-API-Key: ${bot}\r\n`,
    `GET /open/v1/%73${bot.slice(1)} HTTP/1.1\r\nX-API-Key: ${bot}\r\n`,
    `POST /shop/v1/free HTTP/1.1\r\nX-API-Key: ${bot}\r\nContent-Type: application/json\r\nContent-Length: ${bot.length + 11}\r\n`,
    `POST /shop/v1/free HTTP/1.1\r\nX-Escaped: 1\r\nX-API-Key: ${bot}\r\nContent-Type: application/json\r\nContent-Length: ${bot.length + 16}\r\n`,
    `POST /shop/v1/shops/s1/orders HTTP/1.1\r\nX-Tenant: ${bot}\r\n${keyLine()}X-API-Key: ${bot}\r\nContent-Type: application/json\r\nContent-Length: 12\r\n`,
  ]) {
    const escaped = request.includes('X-Escaped') ? `\\u0073${bot.slice(1)}` : bot;
    const text = request.includes('orders') ? '{"amount":5}' : `{"text":"${escaped}"}`;
    const body = request.startsWith('POST') ? text : '';
    const { statuses, urls } = await raw(`${request}Host: HOST\r\nConnection: close\r\n\r\n${body}`);
    expect([statuses, urls]).toEqual([[400], []]);
  }
});

test.each([
  'application/json; charset=utf-16',
  'application/json; charset = utf-7',
  "application/json; charset*=utf-7''x",
  'application/json; charset=utf-8; charset=utf-7',
])('a body in another charset, or in two: %s', async (type) => {
  const { statuses, urls } = await raw(
    WRITE.replace('application/json', type) + `${keyLine()}Content-Length: 12\r\nConnection: close\r\n\r\n{"text":"a"}`,
  );
  expect([statuses, urls]).toEqual([[400], []]);
});

test('an agent’s own Authorization beside X-API-Key goes on to an upstream that the gateway holds no credentials of', async () => {
  const { bot, account } = world.keys;
  const last = async (): Promise<unknown> => (await world.upstream.ledger()).requests.at(-1)?.headers['authorization'];
  const send = (method: string, path: string, authorization: string) =>
    world.call(method, path, { headers: { authorization } });

  expect((await send('GET', '/open/v1/any', 'Bearer sk_agents_own')).status).toBe(200);
  expect(await last()).toBe('Bearer sk_agents_own');
  expect((await send('GET', '/open/v1/trigger', 'Basic dXNlcjpwYXNz')).status).toBe(200);
  expect(await last()).toBe('Basic dXNlcjpwYXNz');

  expect((await send('GET', '/shop/v1/orders/o1', 'Bearer sk_agents_own')).status).toBe(200);
  expect(await last()).toBeUndefined();
  expect((await send('GET', '/open/v1/any', `Bearer ${bot}`)).status).toBe(200);
  expect(await last()).toBeUndefined();
  expect((await send('GET', '/open/v1/any', `Basic ${btoa(`u:${bot}`)}`)).status).toBe(200);
  expect(await last()).toBeUndefined();

  const before = (await world.upstream.ledger()).requests.length;
  expect((await send('GET', '/open/v1/any', `Bearer ${account}`)).status).toBe(401);
  expect((await world.upstream.ledger()).requests.length).toBe(before);
});

test('a canary in every carrier reaches neither upstream nor log', async () => {
  const { bot } = world.keys;
  const canary = 'canary-9f3b';
  const carriers = [
    `Cookie: session=${canary}`,
    `Proxy-Authorization: Basic ${canary}`,
    `X-Forwarded-For: ${canary}`,
    `X-Forwarded-Host: ${canary}`,
    `Forwarded: for=${canary}`,
    `X-Real-IP: ${canary}`,
    `X_Api_Key: ${canary}`,
    `Referer: http://x/?api_key=${canary}`,
    `Svc-Anything: ${canary}`,
    `TE: ${canary}`,
  ].join('\r\n');
  const lead = `HTTP/1.1\r\nHost: HOST\r\n${carriers}\r\nConnection: close\r\n`;
  const body = '{"text":"a"}';
  const requests = [
    `GET /shop/v1/orders/o1 ${lead}X-API-Key: ${bot}\r\n\r\n`,
    `GET /shop/v1/orders/o1 ${lead}Authorization: Bearer ${bot}\r\n\r\n`,
    `GET /shop/v1/orders/o1?api_key=${bot} ${lead}\r\n`,
    `GET /open/v1/any?api_key=${bot}&API_KEY=${canary}&a=1 ${lead}\r\n`,
    `GET /shop/v1/orders/o1?api%5Fkey=${bot} ${lead}Authorization: Basic ${canary}\r\n\r\n`,
    `POST /shop/v1/notes?api_key=${bot} ${lead}Authorization: Bearer ${bot}\r\n${keyLine()}Content-Type: application/json\r\nContent-Length: 12\r\n\r\n${body}`,
  ];
  const before = (await world.upstream.ledger()).requests.length;
  for (const request of requests) {
    const { statuses } = await raw(request);
    expect([statuses[0], request.slice(0, 40)]).toEqual([request.startsWith('POST') ? 201 : 200, request.slice(0, 40)]);
  }
  const seen = (await world.upstream.ledger()).requests.slice(before);
  expect(seen.length).toBe(requests.length);
  const secret = bot.slice(-30);
  for (const request of seen) {
    const text = JSON.stringify(request);
    expect(text.includes(canary), text).toBe(false);
    expect(text.includes(secret), text).toBe(false);
  }
  expect(world.log.join('').includes(secret)).toBe(false);
});
