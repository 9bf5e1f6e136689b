import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client as Client2, StreamableHTTPClientTransport as Transport2 } from '@modelcontextprotocol/client';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { isJsonObject, type Json, type JsonObject } from '../../../src/json/value.ts';
import { INSPECTOR } from '../../../src/upstreams/mcp/inspect-server.ts';
import { makeApiKey, send, startGateway, type TestGateway } from '../gateway.ts';
import { lockOf, textOf } from './lenient-server.ts';
import { callOf, post, resultOf } from './world.ts';
import { toolsAt } from './tools-at.ts';

/*
 * A server on the official SDK that speaks the stateless revision only, and calls that come in no session with it:
 * through the effects API, after an approval, and through the door to all servers.
 */

interface Request {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
}

/** Requests of the gateway for calls, in order. */
const seen: Request[] = [];
let isSessionsOnly = false;

function makeServer(): McpServer {
  const server = new McpServer({ name: 'modern', version: '1.0.0' });
  const say = (text: string) => ({ content: [{ type: 'text' as const, text }] });
  const numbers = z.object({ a: z.number(), b: z.number() });
  server.registerTool('add', { inputSchema: numbers }, ({ a, b }) => say(String(a + b)));
  server.registerTool('approved', { inputSchema: numbers }, ({ a, b }) => say(String(a + b)));
  const routed = z.object({ region: z.string().meta({ 'x-mcp-header': 'Region' }) });
  server.registerTool('routed', { inputSchema: routed }, ({ region }) => say(region));
  server.registerTool('asking', { inputSchema: z.object({}) }, () => say('It was asked'));
  return server;
}

async function startModernServer() {
  const modern = toNodeHandler(createMcpHandler(makeServer, { legacy: 'reject' }));
  const http = createServer((request, response) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of request as AsyncIterable<Buffer>) pieces.push(piece);
      const body: Json = JSON.parse(Buffer.concat(pieces).toString());
      const { method = null, id = null, params = null } = isJsonObject(body) ? body : {};
      if (request.headers['user-agent'] !== INSPECTOR) seen.push({ method: textOf(method), headers: request.headers });
      if (isSessionsOnly) {
        const result =
          method === 'initialize'
            ? { protocolVersion: '2025-06-18', capabilities: {}, serverInfo: { name: 'modern', version: '1.0.0' } }
            : { content: [{ type: 'text', text: 'in a session' }] };
        const isTaken =
          request.headers['mcp-protocol-version'] !== '2026-07-28' && !JSON.stringify(params).includes('2026-07-28');
        response.writeHead(isTaken ? 200 : 400, { 'content-type': 'application/json' });
        const answer = isTaken ? { result } : { error: { code: -32_000, message: 'No such version' } };
        response.end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
        return;
      }
      if (request.headers['mcp-name'] === 'asking') {
        // The SDK would not ask a client that says that it cannot answer.
        const result = {
          resultType: 'input_required',
          inputRequests: { who: { method: 'elicitation/create', params: {} } },
        };
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ jsonrpc: '2.0', id, result }));
        return;
      }
      const named = Object.assign(request, { method: request.method ?? '', url: request.url ?? '' });
      await modern(named, response, body);
    })().catch(() => response.destroy());
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    close: () => {
      http.closeAllConnections();
      http.close();
    },
  };
}

const config = (url: string, pins: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: maria, roles: [lead] }, { id: olga, roles: [] } ]
roles: { lead: {} }
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: modern, timeout: 10s, mcp: { url: "${url}", pins: "${pins}" } } ]
`;
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: modern
owner: team
rules:
  - { id: all, effect: allow, match: { upstreams: [modern] } }
  - { id: ask, effect: require_approval, match: { tools: [modern.approved] }, approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: "May it?" } }
`;

let server: Awaited<ReturnType<typeof startModernServer>>;
let gateway: TestGateway;
let folder: string;
let keys: { readonly bot: string; readonly lead: string };

beforeAll(async () => {
  server = await startModernServer();
  folder = await mkdtemp(join(tmpdir(), 'svc-modern-'));
  const pins = join(folder, 'modern.lock.json');
  const tools = await toolsAt(server.url);
  await writeFile(pins, lockOf('modern', tools.filter(isJsonObject)));
  gateway = await startGateway({ config: config(server.url, pins), policies: { 'modern.yaml': POLICY } });
  keys = {
    bot: await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' }),
    lead: await makeApiKey(gateway, 'maria', { kind: 'account', workspace: 'demo' }),
  };
});
afterAll(async () => {
  await gateway.dispose();
  server.close();
  await rm(folder, { recursive: true });
});
beforeEach(() => {
  seen.length = 0;
  isSessionsOnly = false;
});

let unique = 0;
const run = (tool: string, params: JsonObject) => {
  unique += 1;
  const body = { tool, params, idempotency_key: `run-${unique}` };
  return send(gateway.url, keys.bot, 'POST', '/v1/workspaces/demo/effects', body);
};
const approve = (id: string) => send(gateway.url, keys.lead, 'POST', `/v1/workspaces/demo/approvals/${id}/approve`, {});
const methods = (): readonly string[] => seen.map(({ method }) => method);
const said = (text: string) => ({ content: [{ type: 'text', text }] });

describe('through the effects API', () => {
  test('a call is made in the revision that the server speaks, which is found out once', async () => {
    const { body } = await run('modern.add', { a: 1, b: 2 });
    expect(body).toMatchObject({ decision: 'committed', result: said('3') });
    seen.length = 0;
    expect((await run('modern.add', { a: 2, b: 2 })).body).toMatchObject({ decision: 'committed', result: said('4') });
    expect(methods()).toEqual(['tools/call']);
    expect(seen[0]?.headers).toMatchObject({ 'mcp-protocol-version': '2026-07-28', 'mcp-name': 'add' });
  });

  test('headers repeat the arguments that the pinned tool says', async () => {
    const { body } = await run('modern.routed', { region: 'Zürich' });
    expect(body).toMatchObject({ decision: 'committed', result: said('Zürich') });
    expect(seen.at(-1)?.headers['mcp-param-region']).toBe('=?base64?WsO8cmljaA==?=');
  });

  test('a call that waited for approval is made once it is approved', async () => {
    const { body } = await run('modern.approved', { a: 3, b: 4 });
    expect(body).toMatchObject({ decision: 'pending_approval' });
    expect((await approve(textOf(body.approval?.id))).status).toBe(200);
    const path = `/v1/workspaces/demo/effects/${textOf(body['effect_id'])}`;
    await expect
      .poll(async () => (await send(gateway.url, keys.bot, 'GET', path)).body)
      .toMatchObject({ effect: { state: 'committed' } });
    expect(methods()).toEqual(['tools/call']);
  });

  test('a server that has become one of sessions is asked anew after it has refused one call', async () => {
    await run('modern.add', { a: 1, b: 1 });
    isSessionsOnly = true;
    expect((await run('modern.add', { a: 5, b: 5 })).body).toMatchObject({ decision: 'failed', safe_to_retry: true });
    seen.length = 0;
    const { body } = await run('modern.add', { a: 6, b: 6 });
    expect(body).toMatchObject({ decision: 'committed', result: said('in a session') });
    expect(methods()).toEqual(['initialize', 'notifications/initialized', 'tools/call']);
    expect(seen.at(-1)?.headers['mcp-protocol-version']).toBe('2025-06-18');
    // And back.
    isSessionsOnly = false;
    expect((await run('modern.add', { a: 7, b: 7 })).body).toMatchObject({ decision: 'failed' });
    expect((await run('modern.add', { a: 8, b: 8 })).body).toMatchObject({ decision: 'committed' });
  });
});

describe('through the door to all servers', () => {
  const options = {
    fetch: (url: string | URL, init?: RequestInit): Promise<Response> => {
      const headers = new Headers(init?.headers);
      headers.set('x-api-key', keys.bot);
      return fetch(url, { ...init, headers });
    },
  };
  const door = (): string => `${gateway.url}/mcp`;
  const WHO = { name: 'test', version: '1' };

  test('a client of the revisions with sessions gets the result in its own form', async () => {
    const client = new Client1(WHO);
    const transport = new Transport1(new URL(door()), options);
    // Its types do not allow for exactOptionalPropertyTypes.
    await client.connect(transport as Parameters<typeof client.connect>[0]);
    const progress: number[] = [];
    const result = await client.callTool({ name: 'modern__add', arguments: { a: 20, b: 1 } }, undefined, {
      onprogress: (at) => progress.push(at.progress),
    });
    expect(result).toMatchObject(said('21'));
    expect(result).not.toHaveProperty('resultType');
    await client.close();
  });

  test('a client of the stateless revision does, too', async () => {
    const client = new Client2(WHO, { versionNegotiation: { mode: 'auto' } });
    await client.connect(new Transport2(new URL(door()), options));
    expect(client.getNegotiatedProtocolVersion()).toBe('2026-07-28');
    const given = { region: 'eu' };
    await client.listTools();
    expect(await client.callTool({ name: 'modern__routed', arguments: given })).toMatchObject(said('eu'));
    await client.close();
  });

  test('a tool that asks its user is not answered, and nothing was done', async () => {
    const { result, decision } = resultOf(
      await post({ door, keys: { ...keys, cat: '', limited: '' } }, callOf('modern__asking')),
    );
    expect(decision).toMatchObject({ decision: 'failed', safe_to_retry: true });
    expect(result).toMatchObject({ isError: true, content: [{ type: 'text' }, { type: 'text' }] });
    expect(result).not.toHaveProperty('inputRequests');
  });
});
