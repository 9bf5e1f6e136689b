import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json/value.ts';
import { callOf, type McpWorld, post, resultOf, type Said, startMcpWorld } from './world.ts';

/* The door in the revision without sessions, where calls have rounds and headers repeat what bodies say. */

let world: McpWorld;
beforeAll(async () => {
  world = await startMcpWorld();
});
afterAll(() => world.close());
beforeEach(() => world.server.forget());

const VERSION = '2026-07-28';
const META = {
  'io.modelcontextprotocol/protocolVersion': VERSION,
  'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
};
let unique = 0;

function call(
  name: string,
  given: JsonObject,
  {
    params = {},
    headers = {},
    atAll = false,
  }: { readonly params?: JsonObject; readonly headers?: Record<string, string>; readonly atAll?: boolean } = {},
): Promise<Said> {
  const [at, named] = atAll ? [{ ...world, door: () => `${world.url()}/mcp` }, `crm__${name}`] : [world, name];
  return post(at, callOf(named, given, { _meta: META, ...params }), {
    'mcp-protocol-version': VERSION,
    'mcp-method': 'tools/call',
    'mcp-name': named,
    ...headers,
  });
}

/** Arguments of a call that was not made before, by which the server answers as they say. */
const told = (answer: JsonObject): JsonObject => ({ answer, n: (unique += 1) });
const asking = {
  resultType: 'input_required',
  requestState: 'from the server',
  inputRequests: { sure: { method: 'elicitation/create', params: {} } },
};
const done = { resultType: 'complete', content: [{ type: 'text', text: 'done' }] };

describe('an answer that asks for more', () => {
  test('comes as it is, with the decision beside it: nothing was done', async () => {
    const { result, decision } = resultOf(await call('says', told({ result: asking })));
    expect(result).toMatchObject({ ...asking, requestState: expect.any(String) });
    // It says what was asked, in a form that only the gateway can make.
    expect(result['requestState']).toMatch(/^[\w-]+\.[\w-]{43}$/);
    expect(result).not.toHaveProperty('isError');
    expect(decision).toMatchObject({ decision: 'failed', code: 'upstream_refused', safe_to_retry: true });
  });

  test.each([
    ['a derived key', {}],
    ['a key of the caller', { 'dev.svc-gateway/idempotency-key': 'two-rounds' }],
  ])('is followed by the next round under %s, and what that did is done once', async (_of, meta) => {
    const given: Record<string, JsonObject[string]> = { ...told({ result: asking }) };
    const round = (params: JsonObject): Promise<Said> =>
      call('says', given, { params: { _meta: { ...META, ...meta }, ...params } });
    const first = resultOf(await round({}));
    expect(first.decision).toMatchObject({ decision: 'failed' });
    // The same arguments: the server is told another way what it shall answer now.
    world.server.answerNext({ result: done });
    const { requestState = null } = first.result;
    const answers = { sure: { action: 'accept' }, unasked: { amount: 9 } };
    const second = resultOf(await round({ inputResponses: answers, requestState }));
    expect(second.result).toMatchObject(done);
    expect(second.decision).toMatchObject({ decision: 'committed', effect_id: first.decision['effect_id'] });
    const sent = JSON.parse(world.server.seen.at(-1)?.body ?? '') as { params: JsonObject };
    expect(sent.params).toEqual({
      name: 'says',
      arguments: given,
      _meta: META,
      inputResponses: { sure: { action: 'accept' } },
      requestState: 'from the server',
    });
    expect(resultOf(await round({})).decision).toMatchObject({ decision: 'duplicate_blocked' });
    expect(world.server.ran).toHaveLength(2);
  });

  test('is answered by a state of this very call, or nothing of the answer goes on', async () => {
    const given = told({ result: asking });
    const { requestState = null } = resultOf(await call('says', given)).result;
    const answer = (params: JsonObject, of: JsonObject = given): Promise<Said> =>
      call('says', of, { params: { _meta: META, inputResponses: { sure: {} }, ...params } });
    for (const refused of [
      await answer({ requestState: 'from the server' }),
      await answer({ requestState: `x${JSON.stringify(requestState)}` }),
      await answer({ requestState }, told({ result: asking })),
    ])
      expect(refused.message['error']).toMatchObject({
        code: -32602,
        message: expect.stringContaining('requestState'),
      });
    expect(world.server.ran).toHaveLength(1);
  });

  test('is answered where the client has answered before it was asked: by what the server asks for, and nothing else', async () => {
    const given = told({ result: asking });
    const early = (inputResponses: JsonObject, of: JsonObject = given): Promise<Said> =>
      call('says', of, { params: { _meta: META, inputResponses } });
    const bodies = (): readonly JsonObject[] =>
      world.server.seen.map(({ body }) => (JSON.parse(body) as { params: JsonObject }).params);
    expect(resultOf(await early({ unasked: { amount: 9 } })).result).toMatchObject({ resultType: 'input_required' });
    expect(bodies()).toEqual([{ name: 'says', arguments: given, _meta: META }]);
    world.server.forget();
    await early({ sure: { action: 'accept' }, unasked: { amount: 9 } });
    const round = { inputResponses: { sure: { action: 'accept' } }, requestState: 'from the server' };
    expect(bodies()).toEqual([
      { name: 'says', arguments: given, _meta: META },
      { name: 'says', arguments: given, _meta: META, ...round },
    ]);
    world.server.forget();
    // Who is asked nothing is told nothing.
    expect(resultOf(await early({ sure: {} }, told({ result: done }))).result).toMatchObject(done);
    expect(world.server.ran).toHaveLength(1);
    expect(JSON.stringify(bodies())).not.toContain('inputResponses');
  });

  test('is a result like any other before that revision', async () => {
    const { decision } = resultOf(await post(world, callOf('says', told({ result: { ...asking, content: [] } }))));
    expect(decision).toMatchObject({ decision: 'committed' });
  });
});

test('a result of a kind that nobody knows leaves the outcome unknown', async () => {
  const { result, decision } = resultOf(await call('says', told({ result: { resultType: 'task', taskId: 't1' } })));
  expect(decision).toMatchObject({ decision: 'unknown_effect', code: 'outcome_unknown' });
  expect(result).toMatchObject({ resultType: 'complete', isError: true });
});

test('the member task of a call means nothing, and does not go on', async () => {
  const asTask = { params: { task: { ttl: 1_000 } } };
  const { result, decision } = resultOf(await call('says', told({ result: done }), asTask));
  expect([result, decision]).toMatchObject([done, { decision: 'committed' }]);
  expect(JSON.parse(world.server.seen.at(-1)?.body ?? '')).not.toHaveProperty('params.task');
});

test('arguments that do not fit are a result of that revision, at either door', async () => {
  expect(resultOf(await call('strict', { n: 'x' })).result).toMatchObject({ resultType: 'complete', isError: true });
  const { result } = resultOf(await call('strict', { n: 'x' }, { atAll: true }));
  expect(result).toMatchObject({
    resultType: 'complete',
    isError: true,
    _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'svc-gateway' } },
  });
});

test('at the door to all servers a server in a session hears nothing of what the client says of itself', async () => {
  const { decision } = resultOf(await call('echo', { n: (unique += 1) }, { atAll: true }));
  expect(decision).toMatchObject({ decision: 'committed' });
  const called = world.server.seen.filter(({ body }) => body.includes('tools/call'));
  expect(called).toHaveLength(1);
  expect(called[0]?.body).not.toContain('io.modelcontextprotocol/');
});

test('a refusal says that it is complete, in that revision only', async () => {
  expect(resultOf(await call('forbidden', {})).result).toMatchObject({ resultType: 'complete', isError: true });
  expect(resultOf(await post(world, callOf('forbidden'))).result).not.toHaveProperty('resultType');
});

test('a server that first wants the user to visit an address has done nothing, and its error passes', async () => {
  const error = { code: -32_042, message: 'Visit it', data: { elicitations: [{ url: 'https://crm.example/ok' }] } };
  const { message, headers } = await post(world, callOf('says', told({ error })));
  expect(message['error']).toEqual(error);
  expect(headers.get('svc-decision')).toBeNull();
});

test('a method that nobody knows is not found', async () => {
  const params = { _meta: META };
  const unknown = { jsonrpc: '2.0', id: 1, method: 'tools/callx', params };
  const { status, message } = await post(world, unknown, {
    'mcp-protocol-version': VERSION,
    'mcp-method': 'tools/callx',
  });
  expect([status, message['error']]).toMatchObject([404, { code: -32_601 }]);
  expect(world.server.seen).toEqual([]);
});

describe('a header that repeats an argument', () => {
  const region = (value: string): { headers: Record<string, string> } => ({ headers: { 'mcp-param-region': value } });

  test.each([
    ['eu', 'eu'],
    ['Zürich', '=?base64?WsO8cmljaA==?='],
  ])('goes on where it says %s too', async (value, header) => {
    const { decision } = resultOf(await call('routed', { to: { region: value } }, region(header)));
    expect(decision).toMatchObject({ decision: 'committed' });
    expect(world.server.seen.at(-1)?.headers['mcp-param-region']).toBe(header);
  });

  test.each([
    ['something else', { to: { region: 'eu-2' } }, region('us')],
    ['nothing', { to: { region: 'eu-3' } }, {}],
    ['what is not there', {}, region('eu')],
    ['it in a form that reads in two ways', { to: { region: 'eu' } }, region('=?base64?ZXV=?=')],
  ])('and says %s is refused at the door', async (_what, given, headers) => {
    const { status, message } = await call('routed', given, headers);
    expect([status, message['error']]).toMatchObject([400, { code: -32_020, data: { header: 'mcp-param-region' } }]);
    expect(world.server.ran).toEqual([]);
  });

  test('that the pinned tool does not declare stays here', async () => {
    const { decision } = resultOf(await call('echo', { n: (unique += 1) }, region('us')));
    expect(decision).toMatchObject({ decision: 'committed' });
    expect(world.server.seen.at(-1)?.headers).not.toHaveProperty('mcp-param-region');
  });
});
