import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { McpCall } from '../../../src/effects/model/tool.ts';
import type { MessageListener } from '../../../src/effects/upstream.ts';
import type { JsonObject } from '../../../src/json/value.ts';
import { sendCall } from '../../../src/upstreams/mcp/mcp-upstream.ts';
import { makeDispatch, makeTool } from '../tool.ts';
import { reached } from './reached.ts';

const call: McpCall = { kind: 'mcp', name: 'pay', pinned: {}, isError: 'unknown', onClientClose: 'finish' };

let answer: (response: ServerResponse, request: IncomingMessage) => void;
let server: Server;
beforeAll(async () => {
  server = createServer((request, response) => answer(response, request)).listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

/** What becomes of a call that the server answers so. */
async function sent(
  kind: 'read' | 'write' = 'write',
  more: Partial<McpCall> = {},
  rest: JsonObject = {},
  heard: Partial<MessageListener> = {},
) {
  const upstream = reached(server);
  const proxied = {
    kind: 'message',
    id: 1,
    rest,
    headers: {},
    sessionOf: null,
    signal: new AbortController().signal,
    hears: {
      began: () => undefined,
      passed: () => undefined,
      ended: () => undefined,
      refused: () => undefined,
      ...heard,
    },
  } as const;
  const dispatch = makeDispatch({ tool: makeTool({ kind, timeoutMs: 300 }), proxied });
  try {
    return await sendCall(upstream, dispatch, { ...call, ...more });
  } finally {
    await upstream.through.destroy();
  }
}

const STREAM = { 'content-type': 'text/event-stream' };
const JSON_TEXT = { 'content-type': 'application/json' };

test.each<readonly [string, string, (response: ServerResponse) => void]>([
  ['says nothing', 'timeout', () => undefined],
  [
    'says nothing after the head of a stream',
    'timeout',
    (response) => response.writeHead(200, STREAM).write(': on\n\n'),
  ],
  ['says half an answer', 'timeout', (response) => response.writeHead(200, JSON_TEXT).write('{"jsonrpc"')],
  ['ends its stream', 'reset', (response) => response.writeHead(200, STREAM).end(': on\n\n')],
  [
    'breaks its stream',
    'reset',
    (response) => response.writeHead(200, STREAM).write(': on\n\n', () => response.destroy()),
  ],
  ['breaks its answer', 'reset', (response) => response.writeHead(200, JSON_TEXT).write('{', () => response.destroy())],
  ['says something else', 'malformed', (response) => response.writeHead(200, JSON_TEXT).end('{"a":1}')],
])('of a call to a server that %s nobody knows the outcome, and why is told: %s', async (_what, code, how) => {
  answer = how;
  expect(await sent()).toMatchObject({ kind: 'unknown', evidence: { code } });
});

const answers =
  (body: object, status = 200) =>
  (response: ServerResponse) =>
    void response.writeHead(status, JSON_TEXT).end(JSON.stringify({ jsonrpc: '2.0', id: 1, ...body }));
const broke = { result: { content: [], isError: true } };

test.each<readonly [string, (response: ServerResponse) => void, 'failed' | 'unknown']>([
  ['is told that its body is no JSON', answers({ error: { code: -32_700, message: 'no' } }), 'failed'],
  ['is told that it is no request', answers({ error: { code: -32_600, message: 'no' } }), 'failed'],
  ['has a method that is not there', answers({ error: { code: -32_601, message: 'no' } }), 'failed'],
  ['has params that do not fit', answers({ error: { code: -32_602, message: 'no' } }), 'failed'],
  ['wants more of its client', answers({ error: { code: -32_021, message: 'no' } }), 'failed'],
  ['wants its user to visit a page', answers({ error: { code: -32_042, message: 'no' } }), 'failed'],
  ['breaks the server', answers({ error: { code: -32_603, message: 'no' } }), 'unknown'],
  ['has an error of the server’s own', answers({ error: { code: -1, message: 'no' } }), 'unknown'],
  ['breaks its tool', answers(broke), 'unknown'],
  ['is refused with 400', answers({ error: { code: -1, message: 'no' } }, 400), 'failed'],
  ['is refused with 499', answers({ error: { code: -1, message: 'no' } }, 499), 'failed'],
  ['is answered with 500', answers({ error: { code: -1, message: 'no' } }, 500), 'unknown'],
])('a write that %s: %#', async (_what, how, kind) => {
  answer = how;
  expect((await sent()).kind).toBe(kind);
  // A read leaves nothing to find out.
  expect((await sent('read')).kind).toBe('failed');
});

test('an error of a tool is none that nobody knows of where the configuration says that nothing was done then', async () => {
  answer = answers(broke);
  expect(await sent('write', { isError: 'failed' })).toMatchObject({
    kind: 'failed',
    evidence: { code: 'tool_error' },
  });
});

test('a result of a kind that nobody knows leaves a write unknown in the era that has kinds', async () => {
  answer = answers({ result: { content: [], resultType: 'promise' } });
  const stateless = { _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' } };
  expect(await sent('write', {}, stateless)).toMatchObject({ kind: 'unknown', evidence: { code: 'result_type' } });
  expect((await sent()).kind).toBe('committed');
});

test.each([
  [400, 2],
  [404, 2],
  [403, 1],
])(
  'after a call that the server refuses with %i the gateway has begun %i sessions of its own',
  async (status, begun) => {
    let sessions = 0;
    answer = (response, request) => {
      void json(request).then((body) => {
        const { id, method } = body as JsonObject;
        if (method === 'initialize') {
          sessions += 1;
          const result = { protocolVersion: '2025-11-25', capabilities: {} };
          response.writeHead(200, JSON_TEXT).end(JSON.stringify({ jsonrpc: '2.0', id, result }));
        } else response.writeHead(method === 'tools/call' ? status : 202).end();
      });
    };
    const upstream = reached(server);
    const dispatch = makeDispatch({ tool: makeTool({ kind: 'write', timeoutMs: 3_000 }), proxied: null });
    for (const _ of [1, 2]) expect((await sendCall(upstream, dispatch, call)).kind).toBe('failed');
    expect(sessions).toBe(begun);
    await upstream.through.destroy();
  },
);

const SAID = 'data: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n\n';

/** A server that ends the stream of a call behind one event, and what it is then asked with for the rest. */
function pausing(event: string, then: (response: ServerResponse) => void): IncomingMessage['headers'][] {
  const asked: IncomingMessage['headers'][] = [];
  answer = (response, request) => {
    if (request.method === 'POST') return void response.writeHead(200, STREAM).end(event);
    asked.push(request.headers);
    then(response);
  };
  return asked;
}

test('a stream that the server ends before it has answered is taken up where it ended, and begins once for its caller', async () => {
  const asked = pausing('id: e1\nretry: 100\ndata:\n\n', (response) => response.writeHead(200, STREAM).end(SAID));
  let begun = 0;
  expect((await sent('write', {}, {}, { began: () => (begun += 1) })).kind).toBe('committed');
  expect(asked).toMatchObject([{ accept: 'text/event-stream', 'last-event-id': 'e1' }]);
  expect(asked[0]?.['content-type']).toBeUndefined();
  expect(begun).toBe(1);
});

test.each([401, 404, 405])(
  'that the rest of an answer is refused with %i does not say that nothing was done',
  async (status) => {
    pausing('id: e1\nretry: 100\ndata:\n\n', answers({ error: { code: -32_600, message: 'no' } }, status));
    expect(await sent()).toMatchObject({ kind: 'unknown', evidence: { code: 'reset' } });
  },
);

test('a stream is taken up again when its server says, and not over and over without a pause', async () => {
  const ends = (response: ServerResponse): void =>
    void response.writeHead(200, STREAM).end('id: e2\nretry: 0\ndata:\n\n');
  const often = pausing('id: e1\nretry: 0\ndata:\n\n', ends);
  expect(await sent()).toMatchObject({ kind: 'unknown', evidence: { code: 'timeout' } });
  // 300 ms of time, and 100 ms between two at least.
  expect(often.length).toBeGreaterThan(0);
  expect(often.length).toBeLessThan(4);
  const late = pausing('id: e1\nretry: 60000\ndata:\n\n', ends);
  expect(await sent()).toMatchObject({ kind: 'unknown', evidence: { code: 'timeout' } });
  expect(late).toEqual([]);
});

test('a connection carries the next call where its server ends the stream behind the answer; a stream left open is closed', async () => {
  let connections = 0;
  const count = (): void => void (connections += 1);
  server.on('connection', count);
  const upstream = reached(server);
  const dispatch = makeDispatch({ tool: makeTool({ kind: 'write', timeoutMs: 3_000 }), proxied: null });
  let stream: ServerResponse | null = null;
  answer = (response, request) => {
    void json(request).then((body) => {
      const { id, method } = body as JsonObject;
      const result = method === 'initialize' ? { protocolVersion: '2025-11-25', capabilities: {} } : { content: [] };
      if (id === undefined) return response.writeHead(202).end();
      response.writeHead(200, STREAM).write(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result })}\n\n`);
      if (method === 'initialize') return response.end();
      stream = response;
      return undefined;
    });
  };
  const called = async (): Promise<ServerResponse> => {
    expect((await sendCall(upstream, dispatch, call)).kind).toBe('committed');
    if (stream === null) throw new Error('it was not called');
    return stream;
  };
  (await called()).end();
  const before = connections;
  for (const _ of [1, 2, 3]) {
    await expect.poll(() => upstream.through.stats.running).toBe(0);
    (await called()).end();
  }
  expect(connections).toBe(before);
  await expect.poll(() => upstream.through.stats.running).toBe(0);
  await once(await called(), 'close');
  server.off('connection', count);
  await upstream.through.destroy();
}, 20_000);

test('an event that is too long ends its stream: the server sees that nobody reads on', async () => {
  const upstream = reached(server);
  let closed: Promise<unknown> = Promise.resolve();
  answer = (response) => {
    closed = once(response, 'close');
    response.writeHead(200, STREAM).write(`data: ${'x'.repeat(20_000)}`);
  };
  const proxied = {
    kind: 'message',
    id: 1,
    rest: {},
    headers: {},
    sessionOf: null,
    signal: new AbortController().signal,
    hears: { began: () => undefined, passed: () => undefined, ended: () => undefined, refused: () => undefined },
  } as const;
  const dispatch = makeDispatch({ tool: makeTool({ kind: 'write', timeoutMs: 60_000 }), proxied });
  expect(await sendCall(upstream, dispatch, call)).toMatchObject({ kind: 'unknown', evidence: { code: 'reset' } });
  await closed;
  await upstream.through.destroy();
}, 20_000);

test('of a long answer the beginning is kept, within what may be kept of it; of a long reason, what fits in one line', async () => {
  answer = answers({ result: { content: [{ type: 'text', text: '€'.repeat(2_000) }] } });
  const { result } = (await sent()) as { readonly result: { readonly body: { readonly value: string } } };
  expect(result).toMatchObject({ truncated: true, body: { kind: 'text' } });
  expect(Buffer.byteLength(result.body.value)).toBeLessThanOrEqual(1_000);
  expect(result.body.value.length).toBeGreaterThan(300);
  answer = answers({ error: { code: -1, message: 'x'.repeat(5_000) } });
  expect((await sent()).evidence.message.length).toBeLessThan(600);
});
