import { HARD_CHECKS, largeValues } from './large-inputs.ts';
import { MOST_VALUES } from './watched-world.ts';

/** One hostile request: what goes onto a socket, byte for byte, with places for a host and the headers of a key. */
export interface HostileRequest {
  readonly name: string;
  readonly bytes: (place: { readonly host: string; readonly key: string }) => Buffer;
  readonly after: After;
}

/**
 * What the client does after it has sent it: waits until the connection ends, hears for a moment what comes on one that does
 * not end, or goes away at once.
 */
type After = 'wait' | 'listen' | 'leave';

const WS = '/v1/workspaces/demo';

/** Paths of every kind of endpoint. */
const PATHS: readonly (readonly [method: string, path: string])[] = [
  ['GET', `${WS}/effects`],
  ['POST', `${WS}/effects`],
  ['POST', `${WS}/effects/preview`],
  ['GET', `${WS}/effects/eff_1`],
  ['POST', `${WS}/effects/eff_1/resolve`],
  ['GET', `${WS}/approvals`],
  ['POST', `${WS}/approvals/apr_1/approve`],
  ['POST', `${WS}/claims`],
  ['POST', `${WS}/reservations`],
  ['POST', `${WS}/pauses`],
  ['GET', `${WS}/budgets`],
  ['POST', '/v1/beta/users/tom/keys'],
  ['GET', '/v1/mcp/key-profiles'],
  ['GET', '/v1/mcp'],
  ['POST', '/v1/mcp'],
  ['POST', '/state/verify'],
  ['POST', '/outcomes/reconcile'],
  ['GET', '/docs/errors/not_found'],
  ['GET', '/openapi.json'],
  ['GET', '/payments/v1/payments/pay_1'],
  ['POST', '/payments/v1/free'],
  ['POST', '/payments/v1/payments/pay_1/refunds'],
];

type Head = Readonly<Record<string, string>>;

function made(
  name: string,
  method: string,
  path: string,
  headers: Head,
  body: string | Buffer,
  after: After = 'wait',
): HostileRequest {
  return {
    name: `${method} ${path.slice(0, 60)}: ${name}`,
    after,
    bytes: ({ host, key }) => {
      const lines = Object.entries({
        host,
        connection: 'close',
        'svc-agent-id': 'bot',
        'idempotency-key': 'hostile',
        ...headers,
      })
        .filter(([, value]) => value !== '')
        .map(([header, value]) => `${header}: ${value}`);
      return Buffer.concat([
        Buffer.from(`${method} ${path} HTTP/1.1\r\n${key}${lines.join('\r\n')}\r\n\r\n`, 'latin1'),
        Buffer.from(body),
      ]);
    },
  };
}

function withBody(name: string, path: string, body: string | Buffer, headers: Head = {}): HostileRequest {
  return made(
    name,
    'POST',
    path,
    { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)), ...headers },
    body,
  );
}

function bodies(): readonly HostileRequest[] {
  const posts = PATHS.filter(([method]) => method === 'POST').map(([, path]) => path);
  const large = Object.entries(largeValues(MOST_VALUES)).map(([name, value], index) => {
    const path = posts[index % posts.length] ?? '/state/verify';
    const wrapped =
      path === `${WS}/effects` || path === `${WS}/effects/preview`
        ? `{"tool":"look.free","agent_id":"bot","idempotency_key":"h${index}","params":{"list":${value}}}`
        : `{"a":${value}}`;
    return withBody(name, path, wrapped);
  });
  const hard = Object.entries(HARD_CHECKS).map(([name, { fields, conditions, state }]) =>
    withBody(
      name,
      '/state/verify',
      `{"intent":"x","required_fields":${JSON.stringify(fields)},"assumed_state":${state},"current_state":{},"conditions":${conditions},"on_mismatch":"block"}`,
    ),
  );
  const small: readonly (readonly [string, string | Buffer])[] = [
    ['nothing', ''],
    ['null', 'null'],
    ['half', '{"tool":"look.free","params":{'],
    ['__proto__', '{"__proto__":{"admin":true}}'],
    ['constructor', '{"constructor":{"prototype":{"x":1}}}'],
    ['bytes that are no UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d])],
    ['UTF-16', Buffer.from('{"a":1}', 'utf16le')],
    ['deep', `${'{"a":'.repeat(5000)}1${'}'.repeat(5000)}`],
    ['a number without end', `{"a":${'9'.repeat(10_000)}}`],
    ['NUL', '{"a":"\u0000"}'],
    ['a lone surrogate', String.raw`{"a":"\ud800"}`],
    ['a form', 'a=1&b=2'],
  ];
  return [...large, ...hard, ...posts.flatMap((path) => small.map(([name, body]) => withBody(name, path, body)))];
}

function lengths(): readonly HostileRequest[] {
  const body = '{"a":1}';
  return ['/state/verify', `${WS}/effects`, '/payments/v1/free'].flatMap((path) => [
    withBody('a length that is too small', path, body, { 'content-length': '2' }),
    withBody('a length beyond the limit', path, body, { 'content-length': '99999999999' }),
    withBody('a negative length', path, body, { 'content-length': '-1' }),
    withBody('a length in hex', path, body, { 'content-length': '0x7' }),
    withBody('length and chunks', path, `7\r\n${body}\r\n0\r\n\r\n`, { 'transfer-encoding': 'chunked' }),
    {
      ...withBody('chunks that lie', path, `fffffffff\r\n${body}\r\n0\r\n\r\n`, {
        'content-length': '',
        'transfer-encoding': 'chunked',
      }),
      after: 'listen' as const,
    },
    withBody('chunks with extensions', path, `7;${'x'.repeat(20_000)}\r\n${body}\r\n0\r\n\r\n`, {
      'content-length': '',
      'transfer-encoding': 'chunked',
    }),
    withBody('chunks of one byte', path, `${Array.from({ length: 2_000 }, () => '1\r\n \r\n').join('')}0\r\n\r\n`, {
      'content-length': '',
      'transfer-encoding': 'chunked',
    }),
    withBody('chunks with trailers', path, `7\r\n${body}\r\n0\r\nx-api-key: other\r\n\r\n`, {
      'content-length': '',
      'transfer-encoding': 'chunked',
    }),
    withBody('two codings', path, `7\r\n${body}\r\n0\r\n\r\n`, {
      'content-length': '',
      'transfer-encoding': 'gzip, chunked',
    }),
    withBody('compressed', path, Buffer.from('1f8b0800000000000003', 'hex'), { 'content-encoding': 'gzip' }),
    withBody('another charset', path, body, { 'content-type': 'application/json; charset=utf-7' }),
    withBody('a type of spaces', path, body, { 'content-type': `application/json;${' '.repeat(8_000)}x` }),
    withBody('an expectation', path, body, { expect: '100-continue' }),
    withBody('an odd expectation', path, body, { expect: 'the impossible' }),
    { ...withBody('left in the middle', path, body, { 'content-length': '500000' }), after: 'leave' as const },
    { ...withBody('left at once', path, body), after: 'leave' as const },
  ]);
}

function paths(): readonly HostileRequest[] {
  const tricks = [
    '/../../etc/passwd',
    '/payments/../v1/workspaces/demo/effects',
    '/payments/%2e%2e/v1',
    '/payments/..%2f..%2f',
    '/payments//v1//payments',
    '/payments/v1/payments/%00',
    '/payments/v1/payments/pay_1%',
    '/payments/v1/payments/%c0%ae',
    '/payments/v1/payments/pay_1;x=y',
    '/payments\\v1',
    '//evil.example/x',
    '/v1/workspaces/%64emo/effects',
    '/v1/workspaces/demo/effects/../keys',
    `/v1/workspaces/${'d'.repeat(5_000)}/effects`,
    `/payments/v1/payments/${'p'.repeat(12_000)}`,
    `/${'a/'.repeat(6_000)}`,
    `/payments/v1/payments/${'%41'.repeat(4_000)}`,
    '/docs/errors/..%2f..%2fpackage.json',
    '/docs/errors/%2e%2e',
    '/docs/__proto__',
    '/v1/workspaces/__proto__/effects',
    '/v1/workspaces/constructor/effects',
    '/payments/__proto__',
    '*',
    'http://evil.example/',
    '/payments/v1/payments/pay_1?',
    `${WS}/effects?${'a&'.repeat(6_000)}`,
    `${WS}/effects?${Array.from({ length: 1_500 }, (_, index) => `k${index}=1`).join('&')}`,
    `${WS}/effects?limit=99999999999999999999`,
    `${WS}/effects?cursor=${'z'.repeat(9_000)}`,
    `${WS}/effects?since=9999-99-99T99:99:99Z&until=x`,
    `${WS}/effects?__proto__=1&constructor=2`,
    `${WS}/effects?limit=1&limit=2`,
    `${WS}/effects?a[b][c]=1`,
    `${WS}/approvals?status=${'%F0%9F%98%80'.repeat(900)}`,
    `/payments/v1/payments/pay_1?${'q=1&'.repeat(3_000)}`,
    `/payments/v1/payments/pay_1?${'%'.repeat(9_000)}`,
    '/payments/v1/payments/pay_1?a=1;b=2',
    '/payments/v1/payments/pay_1#x',
    '/livez/../metrics',
  ];
  return tricks.flatMap((path) => [
    made('as it is', 'GET', path, {}, ''),
    made('as it is', 'POST', path, { 'content-length': '2', 'content-type': 'application/json' }, '{}'),
  ]);
}

function headers(): readonly HostileRequest[] {
  const many = Object.fromEntries(Array.from({ length: 900 }, (_, index) => [`x-h${index}`, 'v']));
  const heads: readonly (readonly [string, Head, After?])[] = [
    ['very many', many],
    ['one that is very long', { 'x-long': 'v'.repeat(15_000) }],
    ['beyond what is read', { 'x-long': 'v'.repeat(100_000) }],
    ['another host', { host: 'evil.example' }],
    ['no host', { host: '' }],
    ['a host of spaces', { host: ' \t ' }],
    ['an origin', { origin: 'https://evil.example' }],
    ['an agent in key form', { 'svc-agent-id': `svc_agent_${'A'.repeat(12)}_${'b'.repeat(40)}` }],
    ['a long agent', { 'svc-agent-id': 'a'.repeat(9_000) }],
    ['an agent that is a map', { 'svc-agent-id': '{"$ne":1}' }],
    ['a long idempotency key', { 'idempotency-key': 'k'.repeat(9_000) }],
    ['an idempotency key of bytes', { 'idempotency-key': '\u00ff\u00fe' }],
    ['a structured idempotency key', { 'idempotency-key': `"${String.raw`\"`.repeat(4_000)}` }],
    ['a wait without end', { prefer: `wait=99999999, ${'wait = '.repeat(1_500)}` }],
    ['ranges', { range: `bytes=${'0-1,'.repeat(3_000)}` }],
    [
      'an upgrade',
      { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-key': 'x', 'sec-websocket-version': '13' },
    ],
    [
      'an upgrade to HTTP/2',
      { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': 'AAMAAABkAAQAoAAAAAIAAAAA' },
      'listen',
    ],
    ['a connection that names all', { connection: 'close, x-api-key, host, content-length' }],
    ['an accept without end', { accept: 'application/jose,'.repeat(800) }],
    ['a forwarded address', { 'x-forwarded-for': '127.0.0.1', forwarded: 'for=127.0.0.1', 'x-real-ip': '::1' }],
    ['a method in a header', { 'x-http-method-override': 'DELETE' }],
    ['cookies', { cookie: 'a=b; '.repeat(2_000) }],
    ['a bearer', { authorization: `Bearer ${'x'.repeat(9_000)}` }],
    ['a basic', { authorization: 'Basic Og==' }],
  ];
  return heads.flatMap(([name, head, after]) =>
    [`${WS}/effects`, '/payments/v1/payments/pay_1', '/livez'].map((path) => made(name, 'GET', path, head, '', after)),
  );
}

/** What is no request, or not one alone. */
function sockets(): readonly HostileRequest[] {
  const raw: readonly (readonly [string, string, After?])[] = [
    ['nothing', '', 'leave'],
    ['line ends', '\r\n'.repeat(3_000), 'listen'],
    ['no HTTP', 'HELO example\r\n\r\n'],
    ['TLS', '\u0016\u0003\u0001\u0002\u0000\u0001\u0000'],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['HTTP/0.9', 'GET /\r\n', 'listen'],
    ['HTTP/9.9', 'GET / HTTP/9.9\r\n\r\n'],
    ['a method that is none', 'STEAL / HTTP/1.1\r\nHost: x\r\n\r\n'],
    ['CONNECT', 'CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n'],
    ['TRACE', 'TRACE / HTTP/1.1\r\nHost: x\r\n\r\n', 'listen'],
    ['a header without a name', 'GET / HTTP/1.1\r\n: x\r\n\r\n'],
    ['a header over two lines', 'GET / HTTP/1.1\r\nHost: x\r\nX-A: a\r\n b\r\n\r\n'],
    ['NUL in a header', 'GET / HTTP/1.1\r\nHost: x\r\nX-A: \u0000\r\n\r\n'],
    ['bare line feeds', 'GET /livez HTTP/1.1\nHost: x\n\n'],
    ['half a request', 'GET /livez HTT', 'leave'],
    ['half a head', 'GET /livez HTTP/1.1\r\nHost: x\r\n', 'leave'],
    ['a long line', `GET /${'a'.repeat(200_000)} HTTP/1.1\r\n\r\n`],
    [
      'two at once',
      'GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n',
    ],
    [
      'fifty at once',
      `${'GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'.repeat(50)}GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n`,
    ],
    [
      'one within another',
      'POST /state/verify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n',
    ],
    [
      'two lengths',
      'POST /state/verify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456',
    ],
  ];
  return raw.map(([name, text, after = 'wait']) => ({
    name: `socket: ${name}`,
    after,
    bytes: () => Buffer.from(text, 'latin1'),
  }));
}

/** The battery, in a fixed order. */
export const HOSTILE_REQUESTS: readonly HostileRequest[] = [
  ...bodies(),
  ...lengths(),
  ...paths(),
  ...headers(),
  ...sockets(),
];
