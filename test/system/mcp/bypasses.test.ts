import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json/value.ts';
import { META, STATELESS_VERSIONS } from '../../../src/mcp-protocol/revisions.ts';
import { callOf, type McpWorld, post, resultOf, startMcpWorld } from './world.ts';

/*
 * Attempts to have a server run a tool that policy denies, one that nobody approved, or a read that policy denies. The
 * server takes anything that could be meant as a call: each attempt is sent to it directly first, and it has to run.
 * Through the gateway nothing of it may run, and the honest call beside it goes on.
 */

const [STATELESS] = STATELESS_VERSIONS;
const NAME = 'forbidden';
const call = (name: unknown = NAME): Record<string, unknown> => ({
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name, arguments: {} },
});
const C = JSON.stringify(call());
const PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
const ECHO = JSON.stringify(call('echo'));
const base64 = (text: string): string => `=?base64?${Buffer.from(text).toString('base64')}?=`;
const withMethod = (method: string): string => JSON.stringify({ ...call(), method });
const withName = (name: unknown): string => JSON.stringify(call(name));
const swapped = (text: string): Buffer => Buffer.from(text, 'utf16le').swap16();

interface Attempt {
  readonly what: string;
  readonly body?: string | Buffer;
  readonly method?: string;
  /** Behind the address of the server. */
  readonly path?: string;
  /** In place of the address of the server, at the gateway. */
  readonly at?: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** Bytes on the connection, in place of all else. */
  readonly raw?: (path: string, key: string) => string;
  /** A server alone does not run it: it is an attempt on the gateway. */
  readonly onlyGateway?: true;
}

const bodies: readonly (readonly [string, string | Buffer])[] = [
  ['the call itself', C],
  ['name stands twice', C.replace('"name":', '"name":"echo","name":')],
  ['name stands twice, once escaped', C.replace('"name":', '"name":"echo","n\\u0061me":')],
  ['name stands twice, in another case', C.replace('"name":', '"name":"echo","Name":')],
  ['name stands twice, all in capitals', C.replace('"name":', '"name":"echo","NAME":')],
  ['params stand twice', C.replace('"params":', '"params":{"name":"echo"},"params":')],
  ['params stand twice, in another case', C.replace('"params":', '"params":{"name":"echo"},"Params":')],
  ['method stands twice', C.replace('"method":', '"method":"ping","method":')],
  ['method stands twice, in another case', C.replace('"method":', '"method":"ping","METHOD":')],
  ['jsonrpc stands twice', C.replace('"jsonrpc":', '"jsonrpc":"2.0","jsonrpc":')],
  ['a byte order mark', `\ufeff${C}`],
  ['UTF-16, little end first, with a mark', Buffer.from(`\ufeff${C}`, 'utf16le')],
  ['UTF-16, little end first', Buffer.from(C, 'utf16le')],
  ['UTF-16, big end first, with a mark', swapped(`\ufeff${C}`)],
  ['UTF-16, big end first', swapped(C)],
  [
    'two bytes for an ASCII letter',
    Buffer.concat([
      Buffer.from(C.slice(0, C.indexOf(NAME))),
      Buffer.from([0xc1, 0xa6]),
      Buffer.from(C.slice(C.indexOf(NAME) + 1)),
    ]),
  ],
  ['a batch of one', `[${C}]`],
  ['a batch behind a ping', `[${PING},${C}]`],
  ['a batch in a batch', `[[${C}]]`],
  ['two messages, a line each', `${PING}\n${C}`],
  ['two messages without a gap', `${PING}${C}`],
  ['two messages, a comma between', `${PING},${C}`],
  ['text behind it', `${C} and more`],
  ['text before it', `x=${C}`],
  ['a NUL behind it', `${C}\0`],
  ['a comment before it', `/* ping */${C}`],
  ['a comment in it', C.replace('"name":', '/* echo */"name":')],
  ['single quotes', C.replaceAll('"', "'")],
  ['a comma too many', C.replace('{}}', '{},}')],
  ['NaN', C.replace('"arguments":{}', '"arguments":{"n":NaN}')],
  ['a line end in a text', C.replace('"arguments":{}', '"arguments":{"n":"a\nb"}')],
  ['members without quotes', C.replace('"params"', 'params').replace('"name"', 'name')],
  ['id null', C.replace('"id":1', '"id":null')],
  ['no id: a notification that calls', C.replace('"id":1,', '')],
  ['id a fraction', C.replace('"id":1', '"id":1.5')],
  ['id an object', C.replace('"id":1', '"id":{"a":1}')],
  ['id true', C.replace('"id":1', '"id":true')],
  ['another version of JSON-RPC', C.replace('2.0', '1.0')],
  ['no version of JSON-RPC', C.replace('"jsonrpc":"2.0",', '')],
  ['a call that is an answer too', C.replace('"id":1', '"id":1,"result":{}')],
  ['params a text', JSON.stringify({ ...call(), params: JSON.stringify(call()['params']) })],
  ['params a list', JSON.stringify({ ...call(), params: [NAME, {}] })],
  ['the name inherited', '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"__proto__":{"name":"forbidden"}}}'],
  [
    'the name inherited, with another own',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":null,"__proto__":{"name":"forbidden"},"Name":"forbidden"}}',
  ],
  ['a call as a task', C.replace('"arguments":{}', '"arguments":{},"task":{"ttl":1}')],
];

const methods = [
  'Tools/Call',
  'TOOLS/CALL',
  'tools/call ',
  ' tools/call',
  '\ttools/call',
  'tools//call',
  '/tools/call',
  'tools/call/',
  'tools.call',
  'tools／call',
  'tools/ｃall',
  'tools/c\u200ball',
  'tools/call\u0000',
  'tools%2fcall',
  'tools/%63all',
  'notifications/tools/call',
  'callTool',
  'tool/call',
  'tools/call?x=1',
  'tools/call#x',
  'tools/call@2',
];
const names: readonly unknown[] = [
  'Forbidden',
  'FORBIDDEN',
  'forbidden ',
  ' forbidden',
  'forbidden\u0000',
  'forbidden\n',
  'ｆorbidden',
  '\u{1d41f}orbidden',
  'for\u200bbidden',
  'for\u00adbidden',
  '\ufeffforbidden',
  'crm.forbidden',
  'crm__forbidden',
  './forbidden',
  'echo/../forbidden',
  'echo.forbidden',
  'forbidden%20',
  '%66orbidden',
  'crm:forbidden',
  [NAME],
  { name: NAME },
  'unpinned',
  'Unpinned',
];
const SECRET = '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///secret"}}';

const ATTEMPTS: readonly Attempt[] = [
  ...bodies.map(([what, body]) => ({ what, body })),
  ...methods.map((method) => ({ what: `method ${JSON.stringify(method)}`, body: withMethod(method) })),
  ...names.map((name) => ({ what: `name ${JSON.stringify(name)}`, body: withName(name) })),
  ...(
    [
      ['gzip', gzipSync(C)],
      ['x-gzip', gzipSync(C)],
      ['GZIP', gzipSync(C)],
      ['identity, gzip', gzipSync(C)],
      ['deflate', deflateSync(C)],
      ['br', brotliCompressSync(C)],
    ] as const
  ).map(([encoding, body]) => ({ what: `encoding ${encoding}`, body, headers: { 'content-encoding': encoding } })),
  ...[
    'text/plain',
    'application/json-rpc',
    'application/jsonx',
    'text/event-stream',
    'application/json; charset=iso-8859-1',
    'application/json, text/plain',
    'application/octet-stream',
    '',
  ].map((type) => ({ what: `content type ${JSON.stringify(type)}`, body: C, headers: { 'content-type': type } })),
  {
    what: 'content type of UTF-16',
    body: Buffer.from(C, 'utf16le'),
    headers: { 'content-type': 'application/json; charset=utf-16le' },
  },
  {
    what: 'a form',
    body: `message=${encodeURIComponent(C)}`,
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  },
  { what: 'Mcp-Name names another tool', body: ECHO, headers: { 'mcp-name': NAME } },
  { what: 'Mcp-Name in base64', body: ECHO, headers: { 'mcp-name': base64(NAME) } },
  {
    what: 'Mcp-Name in base64 of another case',
    body: ECHO,
    headers: { 'mcp-name': base64(NAME).replace('base64', 'BASE64') },
  },
  { what: 'Mcp-Name twice', body: ECHO, headers: { 'mcp-name': ['echo', NAME] } },
  { what: 'Mcp-Name as a list', body: ECHO, headers: { 'mcp-name': `echo, ${NAME}` } },
  { what: 'Mcp-Name of a ping', body: PING, headers: { 'mcp-method': 'tools/call', 'mcp-name': NAME } },
  { what: 'Mcp-Method says call', body: withMethod('ping'), headers: { 'mcp-method': 'tools/call' } },
  { what: 'Mcp-Method in base64', body: withMethod('ping'), headers: { 'mcp-method': base64('tools/call') } },
  { what: 'Mcp-Method twice', body: withMethod('ping'), headers: { 'mcp-method': ['ping', 'tools/call'] } },
  { what: 'a denied resource', body: SECRET },
  { what: 'a denied resource, stands twice', body: SECRET.replace('"uri":', '"uri":"file:///open","uri":') },
  { what: 'a denied resource, in another case', body: SECRET.replace('"uri":', '"uri":"file:///open","URI":') },
  {
    what: 'a denied resource in Mcp-Name',
    body: SECRET.replace('secret', 'open'),
    headers: { 'mcp-name': 'file:///secret' },
  },
  ...['PUT', 'PATCH', 'DELETE', 'GET', 'OPTIONS', 'REPORT'].map((method) => ({
    what: `${method} with the call`,
    method,
    body: C,
  })),
  { what: 'GET with the call in pieces', method: 'GET', body: C, headers: { 'transfer-encoding': 'chunked' } },
  { what: 'GET with the call in the query', method: 'GET', path: `?method=tools/call&name=${NAME}` },
  { what: 'POST with the call in the query', body: PING, path: `?method=tools/call&name=${NAME}` },
  { what: 'a method in X-HTTP-Method-Override', method: 'GET', body: C, headers: { 'x-http-method-override': 'POST' } },
  ...['/', '/tools/call', '/..%2fcrm', ';x=1', '%20', '?', '//'].map((path) => ({
    what: `path ${path}`,
    path,
    body: C,
  })),
  ...['/mcp//crm', '/mcp/%63rm', '/mcp/CRM', '/mcp/./crm', '//mcp/crm', '/v1/../mcp/crm', '/mcp/crm%00'].map((at) => ({
    what: `address ${at}`,
    at,
    body: C,
  })),
  {
    what: 'a second request on the connection, without a key',
    raw: (path, key) =>
      `POST ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${key}\r\ncontent-type: application/json\r\ncontent-length: ${PING.length}\r\n\r\n${PING}` +
      `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${C.length}\r\nconnection: close\r\n\r\n${C}`,
  },
  {
    what: 'two lengths that disagree',
    raw: (path, key) =>
      `POST ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${key}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n` +
      `${C.length.toString(16)}\r\n${C}\r\n0\r\n\r\n`,
    onlyGateway: true,
  },
  {
    what: 'chunks with extensions, and a trailer that names the tool',
    raw: (path, key) =>
      `POST ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${key}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n` +
      `${C.length.toString(16)};x="${NAME}"\r\n${C}\r\n0\r\nmcp-name: ${NAME}\r\n\r\n`,
  },
  {
    what: 'a header on two lines',
    raw: (path, key) =>
      `POST ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${key}\r\ncontent-type: application/json\r\nmcp-name: echo\r\n ${NAME}\r\ncontent-length: ${C.length}\r\nconnection: close\r\n\r\n${C}`,
    onlyGateway: true,
  },
  { what: 'as another agent', body: C, headers: { 'svc-agent-id': 'cat' } },
  { what: 'with two keys', body: C, headers: { authorization: 'Bearer svc_agent_x' } },
  { what: 'with the hop header of a proxy', body: C, headers: { connection: 'x-api-key, mcp-session-id' } },
];

let world: McpWorld;
beforeAll(async () => {
  world = await startMcpWorld();
});
afterAll(() => world.close());
beforeEach(() => {
  world.server.ran.length = 0;
});

let unique = 0;

/** The honest call, by itself: the server runs it, and nothing else. */
async function honestCallGoes(): Promise<void> {
  world.server.ran.length = 0;
  const n = (unique += 1);
  const { decision } = resultOf(await post(world, callOf('echo', { n })));
  expect(decision).toMatchObject({ decision: 'committed' });
  expect(world.server.ran).toEqual([{ name: 'echo', arguments: { n } }]);
}

/** What the server ran that it may not. */
function ranForbidden(): readonly string[] {
  return world.server.ran.map(({ name }) => name).filter((name) => name !== 'echo');
}

async function send(attempt: Attempt, base: string): Promise<void> {
  const { hostname, port, pathname } = new URL(base);
  const path = pathname + (attempt.path ?? '');
  if (attempt.raw !== undefined) {
    const socket = connect(Number(port), hostname);
    const closed = once(socket, 'close');
    socket.on('error', () => undefined).resume();
    socket.end(attempt.raw(path, world.keys.bot));
    await closed;
    return;
  }
  const sent = request({
    hostname,
    port,
    path: base.startsWith(world.url()) ? (attempt.at ?? path) : path,
    method: attempt.method ?? 'POST',
    agent: false,
    headers: {
      'x-api-key': world.keys.bot,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...(attempt.headers?.['transfer-encoding'] === undefined && {
        'content-length': Buffer.byteLength(attempt.body ?? ''),
      }),
      ...(attempt.headers as Record<string, string | string[]>),
    },
  });
  const over = new Promise<void>((resolve) => {
    sent.once('error', () => resolve());
    sent.once('response', (response: IncomingMessage) => {
      // A stream would stay open.
      if (/event-stream/.test(response.headers['content-type'] ?? '')) sent.destroy();
      response.on('error', () => resolve()).once('close', () => resolve());
      response.resume();
    });
  });
  sent.end(attempt.body);
  await over;
}

test('there are enough attempts', () => {
  expect(new Set(ATTEMPTS.map(({ what }) => what)).size).toBe(ATTEMPTS.length);
  expect(ATTEMPTS.length).toBeGreaterThan(100);
});

test.each(ATTEMPTS.map((attempt) => [attempt.what, attempt] as const))('%s', async (_what, attempt) => {
  if (attempt.onlyGateway !== true) {
    await send(attempt, world.server.url);
    expect(ranForbidden(), 'the server alone runs it').not.toEqual([]);
    world.server.ran.length = 0;
  }
  await send(attempt, world.door());
  expect(ranForbidden()).toEqual([]);
  await honestCallGoes();
});

test('a key of an honest call does not carry another', async () => {
  const key = { _meta: { 'dev.svc-gateway/idempotency-key': 'carried' } };
  expect(resultOf(await post(world, callOf('echo', {}, key))).decision).toMatchObject({ decision: 'committed' });
  const { result } = resultOf(await post(world, callOf('forbidden', {}, key)));
  expect(result['isError']).toBe(true);
  expect(ranForbidden()).toEqual([]);
  await honestCallGoes();
});

test('a session is its agent’s, whatever is said in it', async () => {
  const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25' } };
  const begun = await post(world, initialize, { 'x-api-key': world.keys.cat });
  const session = begun.headers.get('mcp-session-id') ?? '';
  const own = session.slice(0, session.lastIndexOf('.'));
  world.server.seen.length = 0;
  for (const id of [session, own, `${own}.${'A'.repeat(43)}`, `${session}, ${session}`, session.toLowerCase()])
    for (const [method, body] of [
      ['POST', ECHO],
      ['GET', null],
      ['DELETE', null],
    ] as const) {
      const response = await fetch(world.door(), {
        method,
        body,
        headers: {
          'x-api-key': world.keys.bot,
          ...(body !== null && { 'content-type': 'application/json' }),
          accept: 'application/json, text/event-stream',
          'mcp-session-id': id,
          'last-event-id': 'e1',
        },
      });
      await response.body?.cancel();
      expect(response.status, `${method} ${id}`).toBe(404);
    }
  expect(world.server.seen).toEqual([]);
  await honestCallGoes();
});

test('an event is its agent’s, and of its session: nobody goes on with the stream of another', async () => {
  const begin = async (key: string): Promise<string> => {
    const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25' } };
    return (await post(world, initialize, { 'x-api-key': key })).headers.get('mcp-session-id') ?? '';
  };
  const { bot, cat } = world.keys;
  const [session, another, ofCat] = [await begin(bot), await begin(bot), await begin(cat)];
  /** The id of the first event of a call. */
  const called = async (message: JsonObject, headers: Record<string, string>): Promise<string> => {
    const sent = post(world, message, headers);
    const release = setInterval(() => world.server.release(), 20);
    const { text } = await sent.finally(() => clearInterval(release));
    return /^id: (e1\S*)$/m.exec(text)?.[1] ?? '';
  };
  const goOn = async (key: string, inSession: string | null, id: string): Promise<readonly [number, string]> => {
    const named = inSession === null ? {} : { 'mcp-session-id': inSession };
    const headers = { 'x-api-key': key, accept: 'text/event-stream', 'last-event-id': id, ...named };
    const response = await fetch(world.door(), { headers });
    return [response.status, await response.text()];
  };
  const inSession = await called(callOf('events', { n: 'in a session' }), { 'mcp-session-id': session });
  const envelope = { [META.protocolVersion]: STATELESS, [META.clientCapabilities]: {} };
  const outside = await called(callOf('events', { n: 'in none' }, { _meta: envelope }), {
    'mcp-protocol-version': STATELESS,
    'mcp-method': 'tools/call',
    'mcp-name': 'events',
  });
  world.server.seen.length = 0;
  for (const [key, where, id] of [
    [cat, ofCat, inSession],
    [cat, null, inSession],
    [cat, null, outside],
    [cat, ofCat, outside],
    [bot, another, inSession],
    [bot, null, inSession],
    [bot, session, outside],
    [cat, ofCat, 'e1'],
    [bot, session, 'e1'],
    [bot, session, `${inSession}x`],
    [bot, session, inSession.replace('e1', 'e2')],
    [bot, session, session],
  ] as const) {
    const [status, text] = await goOn(key, where, id);
    expect([status, text], `${String(where)} ${id}`).toEqual([400, expect.stringContaining('Last-Event-ID')]);
  }
  const posted = await post(world, ECHO, { 'x-api-key': cat, 'mcp-session-id': ofCat, 'last-event-id': inSession });
  expect(posted.status).toBe(400);
  expect(world.server.seen).toEqual([]);
  // The honest one goes on, and again from there.
  const [status, text] = await goOn(bot, session, inSession);
  expect([status, text]).toEqual([200, expect.stringContaining('replayed after e1')]);
  const next = /^id: (\S+)$/m.exec(text)?.[1] ?? '';
  expect((await goOn(bot, session, next))[1]).toContain('replayed after e1-next');
  expect((await goOn(cat, ofCat, next))[0]).toBe(400);
  expect((await goOn(bot, null, outside))[1]).toContain('replayed after e1');
  await honestCallGoes();
});

test('tasks of others are no way in', async () => {
  world.server.seen.length = 0;
  for (const method of ['tasks/get', 'tasks/result', 'tasks/list', 'tasks/cancel', 'tasks/update']) {
    const said = await post(world, { jsonrpc: '2.0', id: 1, method, params: { taskId: 'of-cat' } });
    expect(said.message['error'], method).toMatchObject({ code: -32601 });
  }
  expect(world.server.seen).toEqual([]);
  await honestCallGoes();
});
