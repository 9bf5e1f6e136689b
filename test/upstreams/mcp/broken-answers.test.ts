import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Client } from 'undici';
import type { McpCall } from '../../../src/effects/model/tool.ts';
import { AgentSessions, sendCall } from '../../../src/upstreams/mcp/mcp-upstream.ts';
import { OwnSession } from '../../../src/upstreams/mcp/own-session.ts';
import { PinWatch } from '../../../src/upstreams/mcp/pin-watch.ts';
import { makeDispatch, makeTool } from '../tool.ts';

const call: McpCall = { kind: 'mcp', name: 'pay', pinned: {}, isError: 'unknown', onClientClose: 'finish' };

let answer: (response: ServerResponse) => void;
let server: Server;
beforeAll(async () => {
  server = createServer((_request, response) => answer(response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

/** What becomes of a call that the server answers so. */
async function sent() {
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const mcp = { path: '/mcp', allow: [] };
  const through = new Client(url);
  const upstream = {
    settings: { id: 'crm', url, timeoutMs: 1_000, network: 'any', credentials: null, mcp } as const,
    through,
    session: new OwnSession(),
    agentSessions: new AgentSessions(() => 0),
    pins: new PinWatch(
      () => 0,
      () => undefined,
    ),
    limits: { responseBytes: 10_000, responseKeptBytes: 1_000 },
    namesGateway: () => false,
    now: () => 0,
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
  const dispatch = makeDispatch({ tool: makeTool({ timeoutMs: 300 }), proxied });
  try {
    return await sendCall(upstream, dispatch, call);
  } finally {
    await through.destroy();
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
