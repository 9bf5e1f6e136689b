import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Pool } from 'undici';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json/value.ts';
import { inspectServer } from '../../../src/upstreams/mcp/inspect-server.ts';
import { type Reached, ServerRequests } from '../../../src/upstreams/mcp/server-requests.ts';

let server: Server;
let through: Pool;
let reached: Reached;
let asked: { readonly method: string | undefined; readonly headers: IncomingHttpHeaders }[];
let answer: (response: ServerResponse) => void;
beforeEach(async () => {
  asked = [];
  server = createServer((request, response) => {
    asked.push({ method: request.method, headers: request.headers });
    request.resume().on('end', () => answer(response));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  through = new Pool(url);
  const credentials = { header: 'X-Upstream-Key', value: 'upstream-secret' };
  const mcp = { path: '/mcp', allow: [] };
  const settings = { id: 'crm', url, timeoutMs: 5_000, network: 'any', credentials, mcp } as const;
  reached = { settings, through, now: () => 0 };
});
afterEach(async () => {
  await through.destroy();
  server.closeAllConnections();
  server.close();
});

const STREAM = { 'content-type': 'text/event-stream' };
const requests = (signal = new AbortController().signal): ServerRequests => new ServerRequests(reached, 'test', signal);
const ask = () => requests().ask({ id: 1, method: 'tools/list' }, {});
const event = (message: JsonObject): string => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`;

test('what a server asks or tells beside is not its answer, also under the same id; the stream is closed behind that', async () => {
  let closed: Promise<unknown> = Promise.resolve();
  answer = (response) => {
    closed = once(response, 'close');
    response.writeHead(200, STREAM);
    for (const message of [
      { id: 1, method: 'ping' },
      { id: 2, result: { of: 'another' } },
      { id: 1, result: { n: 1 } },
    ])
      response.write(event(message));
  };
  expect(await ask()).toEqual({ status: 200, session: null, result: { n: 1 }, error: null });
  await closed;
}, 20_000);

test('a result with another status than 200 is none, and of an error 500 characters are told', async () => {
  const body = { jsonrpc: '2.0', id: 1, result: { n: 1 }, error: { code: -1, message: 'x'.repeat(600) } };
  answer = (response) => void response.writeHead(500, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  expect(await ask()).toEqual({ status: 500, session: null, result: null, error: 'x'.repeat(500) });
});

test('of all that a server says on one line 4 MiB are read, in however many messages', async () => {
  const line = requests();
  const one = event({ id: 7, result: { text: 'x'.repeat(1024 * 1024) } });
  answer = (response) => {
    response.writeHead(200, STREAM);
    response.end(`${one}${one}${one}${event({ id: 1, result: {} })}`);
  };
  expect((await line.ask({ id: 1, method: 'tools/list' }, {})).result).toEqual({});
  await expect(line.ask({ id: 1, method: 'tools/list' }, {})).rejects.toThrow('longer than 4194304 bytes');
});

test('a server gets the credentials of its configuration, whatever else a request has under that name', async () => {
  answer = (response) => void response.writeHead(202).end();
  await requests().tell({ method: 'notifications/x' }, { 'x-upstream-key': 'of somebody else' });
  expect(asked.map(({ headers }) => headers['x-upstream-key'])).toEqual(['upstream-secret']);
});

test('the end of a session is told also where the time for all that was asked in it is over', async () => {
  answer = (response) => void response.writeHead(200).end();
  await requests(AbortSignal.abort()).end({ 'mcp-session-id': 's1' });
  await expect.poll(() => asked).toMatchObject([{ method: 'DELETE', headers: { 'mcp-session-id': 's1' } }]);
}, 20_000);

test.each([
  [401, 'it wants a key, or another one'],
  [403, 'it wants a key, or another one'],
  [404, 'is declared with `transport: sse`'],
  [405, 'is declared with `transport: sse`'],
  [500, 'is this the address of its MCP endpoint?'],
])('of a server that answers a look with %i people are told that %s', async (status, guess) => {
  answer = (response) => void response.writeHead(status).end();
  expect(await inspectServer(reached)).toContain(guess);
});
