import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isJsonObject, type JsonObject } from '../../../src/json/value.ts';
import { send } from '../gateway.ts';
import { textOf } from './lenient-server.ts';
import { callOf, type McpWorld, post, resultOf, type Said, startMcpWorld } from './world.ts';

/*
 * Calls that wait for a person, as tasks of MCP's extension: the task is the effect. And tasks of servers, which there
 * are none of behind the gateway.
 */

let world: McpWorld;
beforeAll(async () => {
  world = await startMcpWorld();
});
afterAll(() => world.close());
beforeEach(() => world.server.forget());

const EXTENSION = 'io.modelcontextprotocol/tasks';
const VERSION = '2026-07-28';
const metaOf = (clientCapabilities: JsonObject): JsonObject => ({
  'io.modelcontextprotocol/protocolVersion': VERSION,
  'io.modelcontextprotocol/clientCapabilities': clientCapabilities,
});
const TAKES = metaOf({ extensions: { [EXTENSION]: {}, 'example/other': {} } });
const TAKES_NONE = metaOf({});
let unique = 0;

interface Asking {
  readonly meta?: JsonObject;
  readonly key?: string;
  readonly door?: string;
}

function ask(
  method: string,
  name: string,
  params: JsonObject,
  { meta = TAKES, key, door }: Asking = {},
): Promise<Said> {
  const body = { jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: meta } };
  const headers = { 'mcp-protocol-version': VERSION, 'mcp-method': method, 'mcp-name': name };
  const at = door === undefined ? world : { ...world, door: () => door };
  return post(at, body, { ...headers, ...(key === undefined ? {} : { 'x-api-key': key }) });
}
const call = (given: JsonObject, asking: Asking = {}, name = 'ask'): Promise<Said> =>
  ask('tools/call', name, { name, arguments: given }, asking);
const get = (taskId: string, asking: Asking = {}): Promise<Said> => ask('tasks/get', taskId, { taskId }, asking);
const stateOf = async (taskId: string): Promise<JsonObject> => resultOf(await get(taskId)).result;

/** A call that waits. */
async function waiting(given: JsonObject = { n: (unique += 1) }): Promise<{ taskId: string; given: JsonObject }> {
  const { result } = resultOf(await call(given));
  return { taskId: textOf(result['taskId']), given };
}

async function vote(effectId: string, verdict: 'approve' | 'reject'): Promise<void> {
  const { body } = await send(world.url(), world.keys.lead, 'GET', `/v1/workspaces/demo/effects/${effectId}`);
  const id = textOf(body.effect?.approval?.id ?? body.effect?.approval_id);
  const path = `/v1/workspaces/demo/approvals/${id}/${verdict}`;
  const voted = await send(world.url(), world.keys.lead, 'POST', path, { comment: 'So be it' });
  expect(voted.status, JSON.stringify([body, voted.body])).toBe(200);
}

describe('a call that waits for a person', () => {
  test('is a task for a client that takes tasks, and a sentence for others', async () => {
    const given = { n: (unique += 1) };
    const said = await call(given);
    const { result, decision } = resultOf(said);
    expect(said.status).toBe(200);
    expect(decision).toMatchObject({ decision: 'pending_approval', effect_id: result['taskId'] });
    // It may be rejected, and what is refused is kept for a shorter time than what happened.
    expect(result).toMatchObject({ resultType: 'task', status: 'working', ttlMs: 7 * 86_400_000 });
    expect(result).not.toHaveProperty('content');
    expect(resultOf(await call(given)).result).toMatchObject({ taskId: result['taskId'] });
    const other = resultOf(await call(given, { meta: TAKES_NONE }));
    expect(other.result).toMatchObject({ resultType: 'complete', isError: true });
    expect(other.decision).toMatchObject({ effect_id: result['taskId'] });
  });

  test('is kept for as long as the store goes by, which is what was configured at its start', async () => {
    const { configFile } = world.gateway();
    const config = await readFile(configFile, 'utf8');
    try {
      await writeFile(configFile, `${config}\nretention: { denials: 1d }\n`);
      await expect.poll(() => world.log(), { timeout: 20_000 }).toContain('"setting":"retention"');
      const { result } = resultOf(await call({ n: (unique += 1) }));
      expect(result['ttlMs']).toBe(7 * 86_400_000);
      expect(await stateOf(textOf(result['taskId']))).toMatchObject({ ttlMs: 7 * 86_400_000 });
    } finally {
      await writeFile(configFile, config);
    }
  });

  test('is the same task after the gateway was killed, and has its result once it is approved', async () => {
    const { taskId, given } = await waiting();
    world.kill();
    await world.restart();
    const begun = await stateOf(taskId);
    expect(begun).toMatchObject({
      resultType: 'complete',
      taskId,
      status: 'working',
      statusMessage: 'A person has to approve it; nothing has happened yet.',
      pollIntervalMs: 5_000,
      lastUpdatedAt: begun['createdAt'],
    });
    await vote(taskId, 'approve');
    await expect.poll(() => stateOf(taskId)).toMatchObject({ status: 'completed' });
    expect(await stateOf(taskId)).toMatchObject({
      result: {
        resultType: 'complete',
        content: [{ text: JSON.stringify(given) }],
        _meta: { 'dev.svc-gateway/decision': { decision: 'committed', effect_id: taskId } },
      },
    });
    expect(world.server.ran).toHaveLength(1);
    const { body } = await send(world.url(), world.keys.lead, 'GET', `/v1/workspaces/demo/effects/${taskId}`);
    expect(await stateOf(taskId)).toMatchObject({
      createdAt: begun['createdAt'],
      lastUpdatedAt: body.effect.settled_at,
    });
    // At the door to all servers it is the same.
    expect(resultOf(await get(taskId, { door: `${world.url()}/mcp` })).result).toMatchObject({ status: 'completed' });
  });

  test('that a person rejects is completed with the refusal', async () => {
    const { taskId } = await waiting();
    await vote(taskId, 'reject');
    expect(await stateOf(taskId)).toMatchObject({
      status: 'completed',
      result: { isError: true, _meta: { 'dev.svc-gateway/decision': { decision: 'denied_policy' } } },
    });
    expect(world.server.ran).toEqual([]);
  });

  test('is at work while it runs, and completed also where nobody knows its outcome', async () => {
    const running = call({ n: (unique += 1) }, {}, 'slow');
    await expect.poll(() => world.server.ran.length).toBe(1);
    const path = '/v1/workspaces/demo/effects?state=executing';
    const { body } = await send(world.url(), world.keys.lead, 'GET', path);
    const [{ effect_id: taskId }] = body.effects;
    expect(await stateOf(textOf(taskId))).toMatchObject({
      taskId,
      status: 'working',
      statusMessage: 'It was approved, and is running.',
    });
    world.server.release();
    await running;
    expect(await stateOf(textOf(taskId))).toMatchObject({ taskId, status: 'completed' });
    const { decision } = resultOf(await call({ n: (unique += 1) }, {}, 'cut'));
    expect(await stateOf(textOf(decision['effect_id']))).toMatchObject({
      status: 'completed',
      result: { isError: true, _meta: { 'dev.svc-gateway/decision': { decision: 'unknown_effect' } } },
    });
  });

  test('is not decided on by what the agent says', async () => {
    const { taskId } = await waiting();
    const responses = { approval: { action: 'accept' } };
    for (const [method, params] of [
      ['tasks/update', { taskId, inputResponses: responses }],
      ['tasks/cancel', { taskId }],
    ] as const)
      expect(resultOf(await ask(method, taskId, params)).result).toEqual({ resultType: 'complete' });
    expect(await stateOf(taskId)).toMatchObject({ status: 'working' });
    expect(world.server.ran).toEqual([]);
  });

  test('is known at the door of its server and at the door to all, and at no other server’s', async () => {
    const elsewhere = { tool: 'elsewhere.ask', params: {}, idempotency_key: 'elsewhere-1' };
    const { body } = await send(world.url(), world.keys.bot, 'POST', '/v1/workspaces/demo/effects', elsewhere);
    const taskId = textOf(body.effect_id);
    expect((await get(taskId)).message['error']).toMatchObject({ code: -32_602 });
    expect(resultOf(await get(taskId, { door: `${world.url()}/mcp` })).result).toMatchObject({ status: 'completed' });
  });

  test('is nobody else’s: it is answered as one that does not exist', async () => {
    const { taskId } = await waiting();
    const absent = await get('eff_none');
    expect([absent.status, absent.message['error']]).toMatchObject([200, { code: -32_602 }]);
    for (const key of [world.keys.cat, world.keys.limited])
      for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel'])
        expect((await ask(method, taskId, { taskId }, { key })).message).toEqual(absent.message);
  });

  test('is no task for who does not take tasks, and in the revisions with sessions', async () => {
    const { taskId } = await waiting();
    const { status, message } = await get(taskId, { meta: TAKES_NONE });
    expect([status, message['error']]).toMatchObject([
      400,
      { code: -32_021, data: { requiredCapabilities: { extensions: { [EXTENSION]: {} } } } },
    ]);
    const before = await post(world, { jsonrpc: '2.0', id: 1, method: 'tasks/get', params: { taskId } });
    expect([before.status, before.message['error']]).toMatchObject([200, { code: -32_601 }]);
    for (const method of ['tasks/result', 'tasks/list'])
      expect((await ask(method, taskId, { taskId })).message['error']).toMatchObject({ code: -32_601 });
    expect(world.server.seen.filter(({ body }) => body.includes('tasks/'))).toEqual([]);
  });
});

describe('tasks of a server', () => {
  test('are not offered: the gateway’s own are, where there are any', async () => {
    world.server.words = {
      capabilities: { tools: {}, tasks: { list: {} }, extensions: { [EXTENSION]: { own: 1 }, 'example/other': {} } },
    };
    const discovered = resultOf(await ask('server/discover', '', {})).result;
    expect(discovered['capabilities']).toEqual({ tools: {}, extensions: { [EXTENSION]: {}, 'example/other': {} } });
    const atAll = resultOf(await ask('server/discover', '', {}, { door: `${world.url()}/mcp` })).result;
    expect(atAll['capabilities']).toMatchObject({ extensions: { [EXTENSION]: {} } });
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } };
    const begun = await post(world, { jsonrpc: '2.0', id: 1, method: 'initialize', params });
    const { result } = resultOf(begun);
    expect(result['capabilities']).toEqual({ tools: {}, extensions: { 'example/other': {} } });
  });

  test('are not asked for: a server hears of no client that takes them', async () => {
    const { decision } = resultOf(await call({ n: (unique += 1) }, {}, 'echo'));
    expect(decision).toMatchObject({ decision: 'committed' });
    await ask('resources/read', 'file:///open', { uri: 'file:///open' });
    expect(world.server.seen.map(({ body }) => body.includes('example/other'))).toEqual([true, true]);
    expect(world.server.seen.filter(({ body }) => body.includes(EXTENSION))).toEqual([]);
  });

  test('that a client asks for are refused, or, where that means nothing, not heard', async () => {
    const refused = await post(world, callOf('echo', { n: (unique += 1) }, { task: { ttl: 1_000 } }));
    expect(refused.message['error']).toMatchObject({ code: -32_602, message: expect.stringContaining('task') });
    expect(world.server.ran).toEqual([]);
    const given = { n: (unique += 1) };
    const heard = await ask('tools/call', 'echo', { name: 'echo', arguments: given, task: { ttl: 1_000 } });
    expect(resultOf(heard).decision).toMatchObject({ decision: 'committed' });
    expect(world.server.seen.filter(({ body }) => body.includes('"task"'))).toEqual([]);
  });

  test('that it makes all the same leave the outcome unknown', async () => {
    const task = { taskId: 't1', status: 'working', createdAt: '2026-11-23T00:00:00Z', ttl: null };
    const { result, decision } = resultOf(
      await post(world, callOf('says', { answer: { result: { task } }, n: (unique += 1) })),
    );
    expect(decision).toMatchObject({ decision: 'unknown_effect', code: 'outcome_unknown' });
    expect(isJsonObject(result['task'])).toBe(false);
  });
});
