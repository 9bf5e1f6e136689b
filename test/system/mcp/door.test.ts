import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { isJsonObject, type JsonObject } from '../../../src/json/value.ts';
import { callOf, type McpWorld, post, resultOf, startMcpWorld } from './world.ts';

/*
 * What goes through the door to an MCP server, and what does not: by what the server has seen.
 */

let world: McpWorld;
beforeAll(async () => {
  world = await startMcpWorld();
});
afterAll(() => world.close());
beforeEach(() => {
  world.server.seen.length = 0;
  world.server.ran.length = 0;
});

const say = (method: string, params: JsonObject = {}) => ({ jsonrpc: '2.0', id: 1, method, params });
const tell = (method: string, params: JsonObject = {}) => ({ jsonrpc: '2.0', method, params });

test('the gateway’s key does not go on in a message of any kind', async () => {
  const { bot } = world.keys;
  for (const message of [
    callOf('echo', { key: bot }),
    say('resources/read', { uri: `file:///${bot}` }),
    say('ping', { _meta: { deep: [{ key: bot }] } }),
    tell('notifications/progress', { progressToken: bot }),
    { jsonrpc: '2.0', id: 1, result: { content: { text: bot } } },
  ]) {
    const { text } = await post(world, message);
    expect(text, JSON.stringify(message)).toMatch(/key/);
  }
  expect(world.server.seen).toEqual([]);
});

test('the server gets what it is to be asked with, in every request', async () => {
  const begun = await post(world, say('initialize', { protocolVersion: '2025-11-25' }));
  const session = { 'mcp-session-id': begun.headers.get('mcp-session-id') ?? '' };
  await post(world, callOf('echo', { asked: 'with credentials' }), session);
  await post(world, say('tools/list'), session);
  await fetch(world.door(), { method: 'DELETE', headers: { 'x-api-key': world.keys.bot, ...session } });
  expect(world.server.seen.map(({ headers }) => headers['x-server-key'])).toEqual(Array(4).fill('of the server'));
});

test('what a call says beside its arguments goes on', async () => {
  await post(world, callOf('echo', { n: 'beside' }, { _meta: { progressToken: 'p7' } }));
  const sent: unknown = JSON.parse(world.server.seen[0]?.body ?? '');
  expect(sent).toMatchObject({ params: { name: 'echo', arguments: { n: 'beside' }, _meta: { progressToken: 'p7' } } });
});

test('the header Idempotency-Key is the key of a call', async () => {
  const key = { 'idempotency-key': 'in-the-header' };
  const decided = async (given: JsonObject) => resultOf(await post(world, callOf('echo', given), key)).decision;
  expect(await decided({ n: 'a' })).toMatchObject({ decision: 'committed' });
  expect(await decided({ n: 'a' })).toMatchObject({ decision: 'duplicate_blocked' });
  expect(await decided({ n: 'b' })).toMatchObject({ decision: 'idempotency_conflict' });
  expect(world.server.ran).toHaveLength(1);
});

test('a key that is limited to some tools sees and calls these', async () => {
  const own = { 'x-api-key': world.keys.limited };
  const { result } = (await post(world, say('tools/list'), own)).message;
  expect(isJsonObject(result) ? result['tools'] : null).toMatchObject([{ name: 'echo' }]);
  expect(resultOf(await post(world, callOf('look'), own)).decision).toMatchObject({ decision: 'denied_permission' });
  expect(resultOf(await post(world, callOf('echo', { n: 'limited' }), own)).decision).toMatchObject({
    decision: 'committed',
  });
  expect(world.server.ran.map(({ name }) => name)).toEqual(['echo']);
});

test('headers and body that disagree are refused', async () => {
  for (const headers of [
    { 'mcp-method': 'ping' },
    { 'mcp-method': 'tools/call', 'mcp-name': 'look' },
    { 'mcp-protocol-version': '1999-01-01' },
  ]) {
    const { status, message } = await post(world, callOf('echo', { n: 'told twice' }), headers);
    expect([status, message['result']], JSON.stringify(headers)).toEqual([400, undefined]);
  }
  expect(world.server.seen).toEqual([]);
});

test('a notification that nobody knows is refused, and so is a call as a task', async () => {
  const unknown = await post(world, tell('notifications/tools/call', { name: 'echo' }));
  expect([unknown.status, unknown.message['error']]).toMatchObject([400, { code: -32601 }]);
  const task = await post(world, callOf('echo', {}, { task: { ttl: 1000 } }));
  expect(task.message['error']).toMatchObject({ code: -32602 });
  expect(world.server.seen).toEqual([]);
});

test('a call that is cancelled after it has left is finished: the server does not hear of it', async () => {
  const call = callOf('slow', { n: 'cancelled' });
  const first = post(world, call);
  await expect.poll(() => world.server.ran.length).toBe(1);
  const cancelled = await post(world, tell('notifications/cancelled', { requestId: call['id'] ?? null }));
  expect(cancelled.status).toBe(202);
  expect(world.server.seen).toHaveLength(1);
  world.server.release();
  expect(resultOf(await first).decision).toMatchObject({ decision: 'committed' });
});

test('a GET with a body is refused', async () => {
  const sent = request(world.door(), {
    method: 'GET',
    headers: { 'x-api-key': world.keys.bot, accept: 'text/event-stream', 'content-length': '2' },
  });
  sent.end('{}');
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  response.resume();
  expect(response.statusCode).toBe(400);
  expect(world.server.seen).toEqual([]);
});
