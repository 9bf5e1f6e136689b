import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { approvePins, comparePins } from '../../../src/pins/compare.ts';
import { renderPinLock } from '../../../src/pins/lock-file.ts';
import { readServerOnce } from '../../../src/upstreams/mcp/read-once.ts';
import type { McpUpstreamSettings } from '../../../src/upstreams/mcp/settings.ts';
import { makeApiKey, startGateway, type TestGateway } from '../gateway.ts';
import { expectFairShares } from './session-shares.ts';

/*
 * A server that speaks the transport of 2024-11-05 alone, on the official SDK, behind the gateway. Clients speak
 * streamable HTTP.
 */

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: old
owner: team
rules:
  - { id: all, effect: allow, match: { upstreams: [old] } }
  - { id: never, effect: deny, match: { tools: [old.forbidden] }, reason: "Never" }
`;

interface OldServer {
  readonly url: string;
  readonly ran: string[];
  /** Credentials of the requests, by method. */
  readonly keys: Set<string>;
  readonly sessions: Map<string, { readonly transport: SSEServerTransport; readonly response: ServerResponse }>;
  /** What it refuses, saying with which key it came: the stream, or all that is posted; `null`: nothing. */
  refuses: 'GET' | 'POST' | null;
  /** What the first event names, where it is not the server's own address. */
  endpoint: string | null;
  close(): void;
}

let folder: string;
let old: OldServer;
let gateway: TestGateway;
const keys: Record<string, string> = {};

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'svc-mcp-sse-'));
  old = await startOldServer();
  const pins = join(folder, 'old.lock.json');
  writeFileSync(pins, await lockOfServer());
  const config = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga }, { id: cat, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams:
  - id: old
    timeout: 20s
    credentials: { header: x-server-key, value: of-the-server }
    mcp: { url: "${old.url}", transport: sse, pins: "${pins}" }
`;
  gateway = await startGateway({ config, policies: { 'old.yaml': POLICY } });
  for (const id of ['bot', 'cat'])
    keys[id] = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: id });
});
afterAll(async () => {
  await gateway.dispose();
  old.close();
  rmSync(folder, { recursive: true });
});

async function startOldServer(): Promise<OldServer> {
  const sessions: OldServer['sessions'] = new Map();
  const ran: string[] = [];
  const seen = new Set<string>();
  const http: Server = createServer((request, response) => {
    void (async () => {
      const { pathname, searchParams } = new URL(request.url ?? '', 'http://localhost');
      seen.add(`${request.method ?? ''} ${String(request.headers['x-server-key'])}`);
      if (request.method === server.refuses) {
        const { 'x-server-key': key = '' } = request.headers;
        return void response.writeHead(401, { 'x-server-key': key, 'www-authenticate': key }).end(`Not ${String(key)}`);
      }
      if (request.method === 'GET' && pathname === '/sse') {
        if (server.endpoint !== null) {
          response.writeHead(200, { 'content-type': 'text/event-stream' });
          response.write(`event: endpoint\ndata: ${server.endpoint}\n\n`);
          return;
        }
        const transport = new SSEServerTransport('/message', response);
        sessions.set(transport.sessionId, { transport, response });
        response.once('close', () => sessions.delete(transport.sessionId));
        await toolsOf(ran).connect(transport);
        return;
      }
      const session = sessions.get(searchParams.get('sessionId') ?? '');
      if (request.method !== 'POST' || session === undefined) return void response.writeHead(404).end();
      await session.transport.handlePostMessage(request, response);
    })().catch(() => response.destroy());
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}/sse`;
  const close = (): void => {
    http.closeAllConnections();
    http.close();
  };
  const server: OldServer = { url, ran, keys: seen, sessions, refuses: null, endpoint: null, close };
  return server;
}

function toolsOf(ran: string[]): McpServer {
  const server = new McpServer({ name: 'old', version: '1' });
  const say = (text: string) => ({ content: [{ type: 'text' as const, text }] });
  server.registerTool('echo', { inputSchema: { message: z.string() } }, ({ message }) => {
    ran.push(`echo ${message}`);
    return say(message);
  });
  server.registerTool('forbidden', { inputSchema: {} }, () => {
    ran.push('forbidden');
    return say('ran');
  });
  server.registerTool('hangs', { inputSchema: {} }, async () => {
    ran.push('hangs');
    await new Promise(() => undefined);
    return say('never');
  });
  server.registerTool('asks', { inputSchema: {} }, async (_args, extra) => {
    const progressToken = extra._meta?.progressToken;
    if (progressToken !== undefined)
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress: 1 } });
    const { content } = await server.server.elicitInput({
      message: 'Which name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    });
    return say(String(content?.['name']));
  });
  return server;
}

function settings(url: string): McpUpstreamSettings {
  const { origin, pathname } = new URL(url);
  const mcp = { path: pathname, allow: [], sse: { sessions: 2, idleMs: 60_000 } };
  return { id: 'old', url: origin, timeoutMs: 10_000, network: 'any', credentials: null, mcp };
}

/** A lock file with all that the server lists, read as `svc tools` reads it. */
async function lockOfServer(): Promise<string> {
  const live = await readServerOnce(settings(old.url));
  if (typeof live === 'string') throw new Error(live);
  const approved = approvePins(null, live, comparePins('old', null, live), { kind: 'all' });
  if (!approved.ok) throw new Error('nothing to pin');
  return renderPinLock(approved.lock);
}

async function connect(who = 'bot'): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { name: `of ${who}` } }));
  const headers = { authorization: `Bearer ${keys[who] ?? ''}` };
  const transport = new StreamableHTTPClientTransport(new URL(`${gateway.url}/mcp/old`), { requestInit: { headers } });
  await client.connect(transport as Parameters<typeof client.connect>[0]);
  return client;
}

const decided = (decision: string) => ({ 'dev.svc-gateway/decision': { decision } });

test('it is governed as any other, with its credentials, and each session has a stream of its own', async () => {
  const [one, two] = [await connect(), await connect('cat')];
  expect((await one.listTools()).tools.map(({ name }) => name)).toEqual(['asks', 'echo', 'forbidden', 'hangs']);
  expect(await one.callTool({ name: 'echo', arguments: { message: 'hi' } })).toMatchObject({
    content: [{ text: 'hi' }],
    _meta: decided('committed'),
  });
  const denied = await two.callTool({ name: 'forbidden', arguments: {} });
  expect(denied).toMatchObject({ isError: true, _meta: decided('denied_policy') });
  expect(old.ran).toEqual(['echo hi']);
  expect([...old.keys].filter((key) => key.endsWith(' of-the-server')).toSorted()).toEqual([
    'GET of-the-server',
    'POST of-the-server',
  ]);
  // Questions go to the client whose call raised them, both at once.
  const progress: number[] = [];
  const asked = await Promise.all([
    one.callTool({ name: 'asks', arguments: {} }, undefined, { onprogress: (at) => progress.push(at.progress) }),
    two.callTool({ name: 'asks', arguments: {} }),
  ]);
  expect(asked).toMatchObject([{ content: [{ text: 'of bot' }] }, { content: [{ text: 'of cat' }] }]);
  expect(progress).toEqual([1]);
  await expect.poll(() => old.sessions.size).toBe(2);
  for (const client of [one, two])
    if (client.transport instanceof StreamableHTTPClientTransport) await client.transport.terminateSession();
  await expect.poll(() => old.sessions.size).toBe(0);
  await Promise.all([one.close(), two.close()]);
});

test('one agent has all streams: another still gets one, of the idlest of the agent with the most', async () => {
  expect(old.sessions.size).toBe(0);
  await expectFairShares(connect, 32, (client, message) => client.callTool({ name: 'echo', arguments: { message } }));
  await expect.poll(() => old.sessions.size).toBe(0);
});

test('a stream that breaks in the middle of a call: its outcome is unknown, at once, and the next session works', async () => {
  const client = await connect();
  old.ran.length = 0;
  const call = client.callTool({ name: 'hangs', arguments: {} });
  await expect.poll(() => old.ran).toEqual(['hangs']);
  const began = performance.now();
  for (const { response } of old.sessions.values()) response.destroy();
  expect(await call).toMatchObject({ isError: true, _meta: decided('unknown_effect') });
  expect(performance.now() - began).toBeLessThan(1_000);
  // The session is over, as the client is told.
  await expect(client.ping()).rejects.toThrow('Session not found');
  await client.close();
  const next = await connect();
  expect(await next.callTool({ name: 'echo', arguments: { message: 'again' } })).toMatchObject({
    _meta: decided('committed'),
  });
  await next.close();
});

test('an endpoint at another origin, or none, gets nothing', async () => {
  const other = await startOldServer();
  for (const endpoint of [
    other.url,
    `//127.0.0.1:${new URL(other.url).port}/message`,
    'http://[',
    'https://127.0.0.1/',
  ]) {
    old.endpoint = endpoint;
    expect(await readServerOnce(settings(old.url)), endpoint).toContain('not at its own origin');
  }
  old.endpoint = null;
  expect(other.keys.size).toBe(0);
  expect(await readServerOnce(settings(old.url.replace('/sse', '/elsewhere')))).toContain('(404)');
  other.close();
});

test('what the gateway itself says for such a server never has the server’s key', async () => {
  const said: string[] = [];
  const tell = async (method: string, session: string | null, params = {}): Promise<string | null> => {
    const answered = await fetch(`${gateway.url}/mcp/old`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${keys['bot'] ?? ''}`,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...(session !== null && { 'mcp-session-id': session }),
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: said.length, method, params }),
    });
    said.push(`${answered.status} ${JSON.stringify([...answered.headers])} ${await answered.text()}`);
    return answered.headers.get('mcp-session-id');
  };
  const begin = () =>
    tell('initialize', null, {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 't', version: '1' },
    });
  old.refuses = 'GET';
  await begin();
  old.refuses = 'POST';
  await begin();
  old.refuses = null;
  old.endpoint = 'http://[';
  await begin();
  old.endpoint = null;
  const session = await begin();
  old.refuses = 'POST';
  await tell('resources/list', session);
  await tell('tools/call', session, { name: 'echo', arguments: { message: 'refused' } });
  for (const { response } of old.sessions.values()) response.destroy();
  await tell('tools/list', session);
  old.refuses = null;
  const own = ['no stream of events at this address (401)', 'did not take the message (401)', 'not at its own origin'];
  expect(own.map((text) => said.filter((one) => one.includes(text)).length)).toEqual([1, 3, 1]);
  for (const text of [...said, gateway.log()]) expect(text).not.toContain('of-the-server');
});
