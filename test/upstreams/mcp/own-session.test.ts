import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { Pool } from 'undici';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isJsonObject, type Json } from '../../../src/json/value.ts';
import { answerServer, OwnSession } from '../../../src/upstreams/mcp/own-session.ts';
import type { Reached } from '../../../src/upstreams/mcp/server-requests.ts';

interface Asked {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Json;
}

let server: Server;
let through: Pool;
let reached: Reached;
let asked: Asked[];
/** Whether it takes clients of the revisions with sessions, and whether it names its sessions. */
let takes: 'sessions' | 'nameless' | 'stateless' | 'nobody';
beforeEach(async () => {
  asked = [];
  takes = 'sessions';
  server = createServer((request, response) => {
    void (async () => {
      const body = request.method === 'POST' ? ((await json(request)) as Json) : null;
      const method = isJsonObject(body) && typeof body['method'] === 'string' ? body['method'] : '';
      asked.push({
        method: request.method === 'POST' ? method : (request.method ?? ''),
        headers: request.headers,
        body,
      });
      const isBeginning = method === (takes === 'stateless' ? 'server/discover' : 'initialize');
      if (takes !== 'nobody' && isBeginning && isJsonObject(body)) {
        const session = takes === 'sessions' ? { 'mcp-session-id': `s${asked.length}` } : {};
        response.writeHead(200, { 'content-type': 'application/json', ...session });
        response.end(
          JSON.stringify({ jsonrpc: '2.0', id: body['id'] ?? null, result: { protocolVersion: '2025-06-18' } }),
        );
      } else response.writeHead(isBeginning || method === 'initialize' ? 404 : 202).end();
    })();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  through = new Pool(`http://127.0.0.1:${port}`);
  const credentials = { header: 'X-Upstream-Key', value: 'upstream-secret' };
  const mcp = { path: '/mcp', allow: [] };
  const settings = {
    id: 'crm',
    url: `http://127.0.0.1:${port}`,
    timeoutMs: 5_000,
    network: 'any',
    credentials,
    mcp,
  } as const;
  reached = { settings, through, now: () => 0 };
});
afterEach(async () => {
  await through.close();
  server.closeAllConnections();
  server.close();
});

const methods = (): string[] => asked.map(({ method }) => method);

async function entered(session: OwnSession) {
  const given = await session.enter(reached, 5_000);
  if (typeof given === 'string') throw new Error(given);
  return given;
}

test('a session is begun once, also for calls that come at once, and each has an id of its own', async () => {
  const session = new OwnSession('bot');
  const all = await Promise.all([entered(session), entered(session), entered(session)]);
  expect(new Set(all.map(({ id }) => id))).toEqual(new Set([1, 2, 3]));
  expect((await entered(session)).id).toBe(4);
  expect(methods()).toEqual(['initialize', 'notifications/initialized']);
  const headers = { 'mcp-protocol-version': '2025-06-18', 'mcp-session-id': 's1' };
  expect(all[0]?.begun).toEqual({ kind: 'session', headers, isNamed: true });
  for (const one of asked) expect(one.headers).toMatchObject({ 'x-upstream-key': 'upstream-secret' });
  expect(asked[1]?.headers).toMatchObject(headers);
});

test('a session that the server has forgotten is begun anew, and not because of one before it', async () => {
  const session = new OwnSession();
  const first = await entered(session);
  await session.forget(first.begun);
  const second = await entered(session);
  expect(second).toMatchObject({ id: 2, begun: { headers: { 'mcp-session-id': 's3' } } });
  await session.forget(first.begun);
  expect((await entered(session)).begun).toBe(second.begun);
  expect(methods().filter((method) => method === 'initialize')).toHaveLength(2);
});

test('a server that takes nobody is asked again by the next call, and says why there is none', async () => {
  const session = new OwnSession();
  takes = 'nobody';
  expect(await session.enter(reached, 5_000)).toContain('neither initialize (404)');
  takes = 'stateless';
  const { begun } = await entered(session);
  expect(begun).toMatchObject({ kind: 'stateless', headers: { 'mcp-protocol-version': '2026-07-28' } });
  // There is nothing to end, and no server asks in this way.
  session.end(reached);
  await answerServer(reached, begun, { id: 1, result: {} });
  expect(methods()).toEqual(['initialize', 'server/discover', 'initialize', 'server/discover']);
});

test('its end is told to the server where it has named it, and the next call begins another', async () => {
  const session = new OwnSession();
  await entered(session);
  session.end(reached);
  await expect.poll(methods).toContain('DELETE');
  expect(asked.at(-1)?.headers).toMatchObject({ 'mcp-session-id': 's1', 'x-upstream-key': 'upstream-secret' });
  takes = 'nameless';
  await entered(session);
  session.end(reached);
  const { begun } = await entered(session);
  await answerServer(reached, begun, { id: 'q', result: {} });
  expect(asked.at(-1)?.body).toEqual({ jsonrpc: '2.0', id: 'q', result: {} });
  expect(methods().filter((method) => method === 'DELETE')).toHaveLength(1);
});
