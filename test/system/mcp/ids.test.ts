import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CallToolRequestSchema,
  ErrorCode,
  ListPromptsRequestSchema,
  ListToolsRequestSchema,
  McpError,
} from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json/value.ts';
import { makeApiKey, startGateway, type TestGateway } from '../gateway.ts';
import { lockOf } from './lenient-server.ts';
import { callOf, post, resultOf } from './world.ts';

const TOOLS = ['pay', 'decline', 'stops', 'refuses', 'errs'].map((name) => ({
  name,
  inputSchema: { type: 'object' as const, additionalProperties: true },
}));

/** What the server has begun, in order, and what it waits for before it answers. */
let begun: string[] = [];
const held = new Map<string, () => void>();
const hold = (name: string): Promise<void> => {
  begun.push(name);
  return new Promise((resolve) => held.set(name, resolve));
};
const release = (name: string): void => held.get(name)?.();
const hasBegun = (name: string) => expect.poll(() => begun).toContain(name);

/** A server on the official SDK, with sessions. It answers when the test lets it. */
function officialServer(): HttpServer {
  const transports = new Map<string, StreamableHTTPServerTransport>();
  const begin = async (): Promise<StreamableHTTPServerTransport> => {
    const transport: StreamableHTTPServerTransport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (id) => void transports.set(id, transport),
    });
    const server = new Server({ name: 'held', version: '1' }, { capabilities: { tools: {}, prompts: {} } });
    server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: TOOLS }));
    server.setRequestHandler(ListPromptsRequestSchema, async () => {
      await hold('prompts');
      throw new McpError(ErrorCode.InvalidParams, 'No prompts here');
    });
    server.setRequestHandler(CallToolRequestSchema, async ({ params: { name } }, { signal }) => {
      signal.addEventListener('abort', () => begun.push(`${name}: cancelled`));
      if (name === 'errs') throw new McpError(ErrorCode.InvalidParams, 'Not so either');
      await hold(name);
      return { content: [{ type: 'text', text: `${name}: done` }], ...(name === 'decline' && { isError: true }) };
    });
    await server.connect(transport as Parameters<typeof server.connect>[0]);
    return transport;
  };
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body: JsonObject | undefined = request.method === 'POST' ? JSON.parse(await textOf(request)) : undefined;
    if (JSON.stringify(body?.['params'] ?? null).includes('"refuses"')) {
      response.writeHead(400, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', id: body?.['id'], error: { code: -32_600, message: 'Not so' } }));
      return;
    }
    const transport = transports.get(String(request.headers['mcp-session-id'])) ?? (await begin());
    await transport.handleRequest(request, response, body);
  };
  return createServer((request, response) => void answer(request, response));
}

let server: HttpServer;
let folder: string;
let gateway: TestGateway;
let key: string;
let session: string | undefined;

beforeAll(async () => {
  server = officialServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  folder = await mkdtemp(join(tmpdir(), 'svc-ids-'));
  const pins = join(folder, 'held.lock.json');
  await writeFile(pins, lockOf('held', TOOLS, { server: 'held' }));
  const config = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams:
  - id: held
    timeout: 30s
    mcp: { url: "http://127.0.0.1:${port}/mcp", pins: "${pins}", tools: [ { name: stops, on_client_close: abort } ] }
`;
  const rule = '{ id: all, effect: allow, match: { upstreams: [held] } }';
  const policy = `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: held\nowner: team\nrules:\n  - ${rule}\n`;
  gateway = await startGateway({ config, policies: { 'held.yaml': policy } });
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } };
  const { headers } = await send({ jsonrpc: '2.0', id: 0, method: 'initialize', params });
  session = headers.get('mcp-session-id') ?? undefined;
  await send({ jsonrpc: '2.0', method: 'notifications/initialized' });
});
afterAll(async () => {
  await gateway.dispose();
  server.closeAllConnections();
  server.close();
  await rm(folder, { recursive: true });
});
beforeEach(() => {
  begun = [];
});

const send = (message: JsonObject) =>
  post({ door: () => `${gateway.url}/mcp/held`, keys: { bot: key } as Parameters<typeof post>[0]['keys'] }, message, {
    ...(session !== undefined && { 'mcp-session-id': session }),
  });
let unique = 0;
/** All under one id, as no client should. */
const call = (name: string) => send({ ...callOf(name, { n: (unique += 1) }), id: 7 });

test('the answer to one call is never that of another under the same id', async () => {
  const pay = call('pay');
  await hasBegun('pay');
  const decline = call('decline');
  await hasBegun('decline');
  release('pay');
  const first = resultOf(await Promise.race([pay, decline]));
  expect(first.result).toMatchObject({ content: [{ text: 'pay: done' }] });
  release('decline');
  expect(resultOf(await decline).decision).toMatchObject({ decision: 'unknown_effect' });
  expect(resultOf(await pay).decision).toMatchObject({ decision: 'committed' });
  expect((await pay).message['id']).toBe(7);
});

test('an error of another request under its id does not say that a call has not run', async () => {
  const prompts = send({ jsonrpc: '2.0', id: 7, method: 'prompts/list', params: {} });
  await hasBegun('prompts');
  const pay = call('pay');
  await hasBegun('pay');
  release('prompts');
  expect((await Promise.race([prompts, pay])).message['error']).toMatchObject({ code: -32_602 });
  release('pay');
  expect(resultOf(await pay).decision).toMatchObject({ decision: 'committed' });
});

test('a call is cancelled, and refused, under the id that its client knows', async () => {
  const stops = call('stops').catch(() => null);
  await hasBegun('stops');
  await send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 7 } });
  await hasBegun('stops: cancelled');
  release('stops');
  await stops;
  expect(await call('refuses')).toMatchObject({ status: 400, message: { id: 7, error: { message: 'Not so' } } });
});

test('an error that the server answers a call with comes under the id of its client, and was not done', async () => {
  const { status, message } = await call('errs');
  expect([status, message['id']]).toEqual([200, 7]);
  expect(message['error']).toMatchObject({ message: expect.stringContaining('Not so either') });
});
