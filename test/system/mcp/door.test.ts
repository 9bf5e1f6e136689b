import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { isJsonObject, type JsonObject } from '../../../src/json/value.ts';
import { makeApiKey, send } from '../gateway.ts';
import { textOf } from './lenient-server.ts';
import { callOf, type McpWorld, post, resultOf, type Said, startMcpWorld } from './world.ts';

/*
 * What goes through the door to an MCP server, and what does not: by what the server has seen.
 */

let world: McpWorld;
beforeAll(async () => {
  world = await startMcpWorld();
});
afterAll(() => world.close());
beforeEach(() => world.server.forget());

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

test('of the headers of a client those of its trace and those that the upstream names go on, at either door', async () => {
  const trace = { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, tracestate: 'a=b', baggage: 'c=d' };
  const sent = { ...trace, 'x-tenant': 'acme', 'x-other': 'stays here' };
  const atAll = { keys: world.keys, door: () => `${world.url()}/mcp` };
  await post(world, callOf('echo', { n: 'traced' }), sent);
  await post(world, say('resources/list'), sent);
  await post(atAll, callOf('crm__echo', { n: 'traced, too' }), sent);
  const calls = world.server.seen.filter(({ body }) => /"(?:tools\/call|resources\/list)"/.test(body));
  expect(calls).toHaveLength(3);
  for (const { headers } of calls) {
    expect(headers).toMatchObject({ ...trace, 'x-tenant': 'acme' });
    expect(headers).not.toHaveProperty('x-other');
  }
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
  // Who repeats it under a key of its own has lost the answer: it comes again, as often as it is asked for.
  for (let repeated = 0; repeated < 2; repeated += 1) {
    const { decision, result } = resultOf(await post(world, callOf('echo', { n: 'a' }), key));
    expect([decision['decision'], result['isError'] ?? false]).toEqual(['duplicate_blocked', false]);
    expect(JSON.stringify(result['content'])).toContain('\\"n\\":\\"a\\"');
  }
  expect(await decided({ n: 'b' })).toMatchObject({ decision: 'idempotency_conflict' });
  expect(world.server.ran).toHaveLength(1);
});

test('of the keys of a call that in _meta counts, then the header, then the argument; one that is none is refused', async () => {
  const keyOf = async (given: JsonObject, meta: JsonObject, headers: Record<string, string> = {}, name = 'strict') => {
    const { decision } = resultOf(await post(world, callOf(name, given, { _meta: meta }), headers));
    const path = `/v1/workspaces/demo/effects/${textOf(decision['effect_id'])}`;
    return (await send(world.url(), world.keys.lead, 'GET', path)).body.effect.idempotency_key;
  };
  const keyOfTyped = (order: string | number) => keyOf({ order }, {}, {}, 'typed');
  const inMeta = (key: string) => ({ 'dev.svc-gateway/idempotency-key': key });
  const inHeader = { 'idempotency-key': 'of-the-header' };
  expect(await keyOf({ n: 51 }, inMeta('of-meta'), inHeader)).toBe('of-meta');
  expect(await keyOf({ n: 52 }, {}, inHeader)).toBe('of-the-header');
  expect(await keyOf({ n: 53 }, {})).toBe('crm.strict:53');
  world.server.forget();
  for (const key of ['', 'a b', 'ü', 'x'.repeat(256), 7]) {
    const { message } = await post(
      world,
      callOf('strict', { n: 54 }, { _meta: { 'dev.svc-gateway/idempotency-key': key } }),
    );
    expect(message['error'], String(key)).toMatchObject({
      message: expect.stringContaining('idempotency-key in _meta') as unknown,
    });
  }
  const { message } = await post(world, callOf('strict', { n: 55 }), { 'idempotency-key': 'a b' });
  expect(message['error']).toMatchObject({ message: expect.stringContaining('Idempotency-Key') as unknown });
  expect(world.server.ran).toEqual([]);
  // A text may hold what no key does; one that is too long for a key is none.
  expect(await keyOfTyped('a b/ü')).toBe('crm.typed:a%20b%2F%C3%BC');
  expect(await keyOfTyped('x'.repeat(245))).toBe(`crm.typed:${'x'.repeat(245)}`);
  expect(await keyOfTyped('x'.repeat(246))).not.toMatch(/^crm\.typed:/);
  expect(await keyOfTyped(1.5)).not.toMatch(/^crm\.typed:/);
});

test('a key of no single agent acts for the agent that Svc-Agent-Id names, and for nobody without it', async () => {
  const own = { 'x-api-key': world.keys.lead };
  const call = () => callOf('look', {});
  const { decision } = resultOf(await post(world, call(), { ...own, 'svc-agent-id': 'cat' }));
  const path = `/v1/workspaces/demo/effects/${textOf(decision['effect_id'])}`;
  expect((await send(world.url(), world.keys.lead, 'GET', path)).body.effect).toMatchObject({ agent_id: 'cat' });
  world.server.forget();
  const nobody = await post(world, call(), own);
  expect([nobody.status, nobody.text]).toEqual([400, expect.stringContaining('Svc-Agent-Id')]);
  const stranger = await post(world, call(), { ...own, 'svc-agent-id': 'stranger' });
  expect(resultOf(stranger).decision).toMatchObject({ decision: 'denied_identity' });
  expect(world.server.ran).toEqual([]);
});

test('a list that is the answer to something else, or reads in two ways, does not pass', async () => {
  const tools = [{ name: 'not-pinned', inputSchema: { type: 'object' } }];
  const other = { jsonrpc: '2.0', id: 'other', result: { tools } };
  const twice = JSON.stringify({ ...other, id: 1 }).replace('{', '{"id":2,');
  for (const text of [JSON.stringify(other), JSON.stringify(tools), twice]) {
    world.server.listAs = { status: 200, type: 'application/json', text };
    const answer = await post(world, say('tools/list'));
    expect([answer.text.includes('not-pinned'), answer.message.error !== undefined], text).toEqual([false, true]);
  }
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

test.each([
  ['its server', '/mcp/crm', 'asks'],
  ['all servers', '/mcp', 'crm__asks'],
])(
  'a call that is cancelled at the door to %s is broken off where its tool says so, and nobody knows its outcome',
  async (door, path, name) => {
    const at = { keys: world.keys, door: () => world.url() + path };
    const call = callOf(name, { cancelled: door });
    const first = post(at, call);
    await expect.poll(() => world.server.ran.length).toBe(1);
    // What another agent cancels is a call of its own.
    const cancelled = tell('notifications/cancelled', { requestId: call['id'] ?? null });
    expect((await post(at, cancelled, { 'x-api-key': world.keys.cat })).status).toBe(202);
    const joined = resultOf(await post(at, { ...call, id: 'joined' }));
    expect(joined.decision).toMatchObject({ decision: 'in_progress' });
    expect((await post(at, cancelled)).status).toBe(202);
    expect(resultOf(await first).decision).toMatchObject({ decision: 'unknown_effect' });
  },
  // Long before the time of the call is over, after which nobody knows either.
  8_000,
);

test('a call whose client goes is broken off where its tool says so, and nobody knows its outcome', async () => {
  const call = callOf('asks', { n: 'left' });
  const gone = new AbortController();
  const headers = { 'x-api-key': world.keys.bot, 'content-type': 'application/json', accept: 'text/event-stream' };
  const left = fetch(world.door(), { method: 'POST', headers, body: JSON.stringify(call), signal: gone.signal });
  const reading = left.then((response) => response.text()).catch(() => null);
  await expect.poll(() => world.server.ran.length).toBe(1);
  gone.abort();
  await reading;
  // Long before the time of the call is over, after which nobody knows either.
  await expect
    .poll(async () => resultOf(await post(world, callOf('asks', { n: 'left' }))).decision, { timeout: 5_000 })
    .toMatchObject({ decision: 'unknown_effect' });
  expect(world.server.ran).toHaveLength(1);
});

/** A stream of the server that a client keeps open, or one that answers a call of a tool. */
async function hear(asked: { readonly key: string; readonly call?: JsonObject }) {
  const { key, call } = asked;
  const headers = {
    'x-api-key': key,
    accept: 'application/json, text/event-stream',
    'content-type': 'application/json',
  };
  const sent = call === undefined ? { method: 'GET' } : { method: 'POST', body: JSON.stringify(call) };
  const response = await fetch(world.door(), { ...sent, headers });
  let heard = '';
  let isOver = false;
  const reading = async (): Promise<void> => {
    const text = response.body?.pipeThrough(new TextDecoderStream()) ?? [];
    for await (const piece of text) heard += piece;
  };
  void reading()
    .catch(() => undefined)
    .finally(() => {
      isOver = true;
    });
  return { status: response.status, heard: () => heard, isOver: () => isOver };
}

const notice = (data: string): string =>
  JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { data } });

async function revoke(key: string): Promise<void> {
  const { url, administrativeKey } = world.gateway();
  const id = `key_${key.slice('svc_agent_'.length, 'svc_agent_'.length + 12)}`;
  expect((await send(url, administrativeKey, 'DELETE', `/v1/beta/users/olga/keys/${id}`)).status).toBe(200);
}

const botsKey = (): Promise<string> =>
  makeApiKey(world.gateway(), 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });

test('a stream ends with its key; that of another key goes on', async () => {
  const ended = await botsKey();
  const [its, other] = [await hear({ key: ended }), await hear({ key: world.keys.bot })];
  world.server.tell(notice('before'));
  await expect.poll(() => [its.heard(), other.heard()].every((heard) => heard.includes('before'))).toBe(true);
  await revoke(ended);
  await expect.poll(its.isOver).toBe(true);
  world.server.tell(notice('after'));
  await expect.poll(other.heard).toContain('after');
  expect(its.heard()).not.toContain('after');
});

test('the stream of an answer to a call ends with its key, and the call goes on', async () => {
  const ended = await botsKey();
  const call = callOf('events', { revoked: 'meanwhile' });
  const its = await hear({ key: ended, call });
  await expect.poll(its.heard).toContain('half way');
  await revoke(ended);
  await expect.poll(its.isOver).toBe(true);
  world.server.release();
  await expect.poll(async () => (await post(world, call)).text).toContain('duplicate_blocked');
  expect(world.server.ran).toHaveLength(1);
});

test('a pause ends the streams that it covers and refuses new ones, as it does with reads that stream', async () => {
  const { url } = world.gateway();
  const its = await hear({ key: world.keys.bot });
  const others = await hear({ key: world.keys.cat });
  const answer = await hear({ key: world.keys.bot, call: callOf('events', { paused: 'meanwhile' }) });
  const pauses = '/v1/workspaces/demo/pauses';
  const body = { scope: { agent: 'bot' }, reason: 'looked at' };
  const made = await send(url, world.keys.lead, 'POST', pauses, body);
  expect(made.status, JSON.stringify(made.body)).toBe(201);
  try {
    await expect.poll(() => [its.isOver(), answer.isOver()]).toEqual([true, true]);
    const refused = await fetch(world.door(), {
      headers: { 'x-api-key': world.keys.bot, accept: 'text/event-stream' },
    });
    expect([refused.status, await refused.text()]).toEqual([403, expect.stringContaining('denied_paused')]);
    world.server.tell(notice('meanwhile'));
    await expect.poll(others.heard).toContain('meanwhile');
    expect(its.heard()).not.toContain('meanwhile');
  } finally {
    world.server.release();
    const { id } = made.body as { readonly id: string };
    expect((await send(url, world.keys.lead, 'DELETE', `${pauses}/${id}`)).status).toBeLessThan(300);
  }
  // The gateway hears of the end of a pause as it hears of its beginning: soon.
  await expect.poll(async () => (await hear({ key: world.keys.bot })).status).toBe(200);
});

test('a GET or a DELETE with a body is refused, and one that has none is not, whatever it says of it', async () => {
  const sent = async (method: string, body: string, more: Record<string, string>): Promise<number | undefined> => {
    const headers = { 'x-api-key': world.keys.bot, accept: 'text/event-stream', ...more };
    const asked = request(world.door(), { method, headers });
    asked.end(body);
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    response.destroy();
    return response.statusCode;
  };
  const type = { 'content-type': 'application/json' };
  const body = JSON.stringify(say('ping'));
  const length = { ...type, 'content-length': String(body.length) };
  expect([await sent('GET', body, length), await sent('DELETE', body, length)]).toEqual([400, 400]);
  expect(world.server.seen).toEqual([]);
  const none = { 'content-length': '0' };
  for (const more of [type, none, { ...type, ...none }])
    expect([await sent('GET', '', more), await sent('DELETE', '', more)], JSON.stringify(more)).toEqual([200, 200]);
  expect(world.server.seen.map(({ method }) => method).join(' ')).toBe('GET DELETE GET DELETE GET DELETE');
});

test('the events of the very answer that begins a session can be gone on from in this session', async () => {
  world.server.beginsWith = 'e0';
  const begun = await post(world, say('initialize', { protocolVersion: '2025-11-25' }));
  const [, last = ''] = /^id: (e0\.[\w-]{43})$/m.exec(begun.text) ?? [];
  const session = begun.headers.get('mcp-session-id') ?? '';
  const again = async (headers: Record<string, string>): Promise<string> => {
    const own = { 'x-api-key': world.keys.bot, accept: 'text/event-stream', 'last-event-id': last };
    const response = await fetch(world.door(), { headers: { ...own, ...headers } });
    return `${response.status} ${await response.text()}`;
  };
  expect(await again({ 'mcp-session-id': session })).toMatch(/^200 .*replayed after e0"/s);
  // The event is of no other session, and of none.
  const other = await post(world, say('initialize', { protocolVersion: '2025-11-25' }));
  for (const headers of [{}, { 'mcp-session-id': other.headers.get('mcp-session-id') ?? '' }])
    expect(await again(headers)).toMatch(/^400 .*Last-Event-ID is no event of this session/s);
});

test('the ids of sessions with a server are not told at the door to all servers', async () => {
  const said = await post({ keys: world.keys, door: () => `${world.url()}/mcp` }, callOf('crm__sends', { events: [] }));
  expect(resultOf(said).decision).toMatchObject({ decision: 'committed' });
  expect(said.headers.get('mcp-session-id')).toBeNull();
  expect(world.server.seen.at(-1)?.headers['mcp-session-id']).toEqual(expect.any(String));
});

test('each request has a line in the log: what it was, and what became of it, without arguments, unknown names and keys', async () => {
  const lineOf = async ({ headers }: Pick<Said, 'headers'>): Promise<unknown> => {
    const id = headers.get('x-request-id') ?? '';
    const find = (): readonly string[] =>
      world
        .log()
        .split('\n')
        .filter((line) => line.includes('"msg":"call"') && line.includes(id));
    await expect.poll(() => find().length, { timeout: 30_000 }).toBe(1);
    return JSON.parse(find()[0] ?? '');
  };
  const at = { method: 'POST', workspace: 'demo', agent: 'bot', upstream: 'crm', status: 200 };
  const passes = { tool: null, decision: null, effect_id: null };

  const done = await post(world, callOf('echo', { n: 'hidden-argument' }));
  expect(await lineOf(done)).toEqual({
    ...at,
    level: 'info',
    time: expect.stringMatching(/^\d{4}-/),
    msg: 'call',
    request_id: done.headers.get('x-request-id'),
    tool: 'crm.echo',
    rpc: 'tools/call',
    decision: 'committed',
    effect_id: resultOf(done).decision['effect_id'],
    bytes_in: expect.any(Number),
    bytes_out: expect.any(Number),
    duration_ms: expect.any(Number),
    auth_ms: expect.any(Number),
    trace_id: null,
  });
  // The head of the answer was written before anything was decided.
  const streamed = await post(world, callOf('cut', { n: 'lines' }));
  expect(await lineOf(streamed)).toMatchObject({ ...at, tool: 'crm.cut', decision: 'unknown_effect' });
  const denied = await post(world, callOf('forbidden'));
  expect(await lineOf(denied)).toMatchObject({ ...at, tool: 'crm.forbidden', decision: 'denied_policy' });
  const undeclared = await post(world, callOf('hidden-name'));
  expect(await lineOf(undeclared)).toMatchObject({ ...at, tool: null, decision: 'denied_policy', rpc: 'tools/call' });
  const secret = await post(world, say('resources/read', { uri: 'file:///secret' }));
  const judged = { ...at, tool: 'crm.(resources/read)', decision: 'denied_policy', rpc: 'resources/read' };
  expect(await lineOf(secret)).toMatchObject(judged);
  expect(await lineOf(await post(world, say('tools/list')))).toMatchObject({ ...at, ...passes, rpc: 'tools/list' });
  const task = await lineOf(await post(world, say('tasks/get', { taskId: 'hidden' })));
  expect(task).toMatchObject({ ...at, ...passes, rpc: 'tasks/get' });
  const told = await lineOf(await post(world, tell('notifications/progress', { progressToken: 'hidden' })));
  expect(told).toMatchObject({ ...at, ...passes, status: 202, rpc: 'notifications/progress' });
  const unknown = await lineOf(await post(world, say('hidden/method')));
  expect(unknown).toMatchObject({ ...at, ...passes });
  expect(unknown).not.toHaveProperty('rpc');

  const federated = { keys: world.keys, door: () => `${world.url()}/mcp` };
  const list = await post(federated, say('tools/list'));
  expect(await lineOf(list)).toMatchObject({ ...at, ...passes, upstream: null, rpc: 'tools/list' });
  const through = await post(federated, callOf('crm__echo', { n: 'lines' }));
  expect(await lineOf(through)).toMatchObject({ ...at, tool: 'crm.echo', decision: 'committed', rpc: 'tools/call' });

  const nowhere = await post({ keys: world.keys, door: () => `${world.url()}/mcp/hidden-server` }, say('ping'));
  expect(await lineOf(nowhere)).toMatchObject({ ...at, ...passes, upstream: null, status: 404 });
  const nobody = await post(world, say('ping'), { 'x-api-key': 'svc_agent_nobody' });
  expect(await lineOf(nobody)).toMatchObject({ status: 401, workspace: '', agent: null, upstream: null });

  const leave = new AbortController();
  const stream = await fetch(world.door(), {
    headers: { 'x-api-key': world.keys.bot, accept: 'text/event-stream' },
    signal: leave.signal,
  });
  leave.abort();
  const stood = await lineOf(stream);
  expect(stood).toMatchObject({ ...at, ...passes, method: 'GET' });
  expect(stood).not.toHaveProperty('cut');
  const text = await (await fetch(`${world.url()}/metrics`)).text();
  expect(text).toMatch(/svc_proxy_call_seconds_count\{upstream="crm",tool="crm\.cut",decision="unknown_effect"\} 1/);
  expect(world.log()).not.toMatch(/hidden-|hidden\/|file:\/\/\/|nobody/);
  for (const key of Object.values(world.keys)) expect(world.log()).not.toContain(key);
});
