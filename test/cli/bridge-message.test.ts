import { describe, expect, test } from 'vitest';
import {
  changesNothing,
  earlierOf,
  headerVersion,
  isAnswer,
  mirrorHeaders,
  readMessage,
  ToolHeaders,
  withoutUnsendable,
} from '../../packages/bridge/src/message.ts';
import { backoff, wait } from '../../packages/bridge/src/server.ts';
import { refusalOf } from '../../packages/bridge/src/refusal.ts';

describe('a line of the client', () => {
  const read = (text: string) => readMessage(Buffer.from(text));

  test.each([
    ['{', -32_700, 'not JSON'],
    ['[{"id":1,"method":"ping"}]', -32_600, 'Batches'],
    ['7', -32_600, 'JSON object'],
    ['{"id":1}', -32_600, 'no method'],
    ['{"id":1,"method":7}', -32_600, 'no method'],
    ['{"id":null,"method":"ping"}', -32_600, 'id of a request'],
    ['{"id":9007199254740992,"method":"ping"}', -32_600, 'id of a request'],
    ['{"id":{},"method":"ping"}', -32_600, 'id of a request'],
  ])('%s is refused with %d', (text, code, words) => {
    expect(read(text)).toMatchObject({ kind: 'refused', code, message: expect.stringContaining(words) });
  });

  test('is a request, a notification or an answer', () => {
    for (const id of ['a', '', 0, -1, 1.5, 9_007_199_254_740_991])
      expect(read(JSON.stringify({ id, method: 'ping', params: [1] }))).toEqual({
        kind: 'request',
        id,
        method: 'ping',
        params: {},
      });
    expect(read('{"method":"n","params":{"a":1}}')).toEqual({ kind: 'notification', method: 'n', params: { a: 1 } });
    expect(read('{"id":1,"result":{}}')).toEqual({ kind: 'response' });
    expect(read('{"id":1,"error":{}}')).toEqual({ kind: 'response' });
  });
});

test('an answer that clients cannot read is none', () => {
  const error = { code: -1, message: 'no' };
  for (const one of [{ result: {} }, { error }]) {
    expect(isAnswer({ jsonrpc: '2.0', ...one })).toBe(true);
    expect(isAnswer({ jsonrpc: '1.0', ...one })).toBe(false);
  }
  for (const other of [
    {},
    { result: 1 },
    { result: {}, error },
    { error: { code: '1', message: 'no' } },
    { error: { code: 1.5, message: 'no' } },
    { error: { code: 1 } },
    { error: null },
  ])
    expect(isAnswer({ jsonrpc: '2.0', ...other }), JSON.stringify(other)).toBe(false);
});

test('what may change something is never taken for what does not, and may have run', () => {
  for (const method of [
    'tools/call',
    'tasks/cancel',
    'tasks/update',
    'logging/setLevel',
    'resources/subscribe',
    'new',
  ]) {
    expect(changesNothing(method), method).toBe(false);
    expect(earlierOf(method)).toMatchObject({ happened: 'maybe', sentence: expect.stringContaining('may have run') });
  }
  for (const method of ['initialize', 'ping', 'tools/list', 'resources/read', 'tasks/get', 'subscriptions/listen']) {
    expect(changesNothing(method), method).toBe(true);
    expect(earlierOf(method)).toEqual({ happened: 'no', sentence: '' });
  }
});

test('a revision goes into a header only if it can', () => {
  const longest = 'x'.repeat(64);
  expect([longest, '2026-07-28'].map(headerVersion)).toEqual([longest, '2026-07-28']);
  for (const version of [`${longest}x`, '', 'a b', 'ü', 'a\n', 7, undefined]) expect(headerVersion(version)).toBeNull();
});

describe('tools whose arguments are repeated in headers', () => {
  const toolWith = (name: string, header: string) => ({
    name,
    inputSchema: { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': header } } },
  });
  const call = { name: 'see', arguments: { region: 'eu' } };

  test('are learnt from a list, and forgotten when a later one says nothing of it', () => {
    const tools = new ToolHeaders();
    const sent = (method = 'tools/call') => mirrorHeaders(method, call, tools);
    const plain = { 'mcp-method': 'tools/call', 'mcp-name': 'see' };
    expect(sent()).toEqual(plain);
    tools.learn({ tools: [toolWith('see', 'Region'), { name: 7 }, null] });
    expect(sent()).toEqual({ ...plain, 'mcp-param-region': 'eu' });
    expect(sent('prompts/get')).toEqual({ 'mcp-method': 'prompts/get', 'mcp-name': 'see' });
    // A method that names nothing is repeated all the same.
    expect(sent('tools/list')).toEqual({ 'mcp-method': 'tools/list' });
    tools.learn({ tools: [{ name: 'see', inputSchema: {} }] });
    expect(sent()).toEqual(plain);
  });

  test('and which cannot be sent are left out of the list, with a word to people', () => {
    const said: string[] = [];
    const listed = (tools: readonly object[]) =>
      withoutUnsendable(
        { id: 1, result: { tools: JSON.parse(JSON.stringify(tools)) } },
        (line) => void said.push(line),
      );
    expect(listed([toolWith('see', 'Region')])).toBeNull();
    const left = listed([toolWith('see', 'Region'), toolWith('bad', 'not a token'), { name: 'plain' }]);
    expect(JSON.parse(left ?? '')).toEqual({
      id: 1,
      result: { tools: [toolWith('see', 'Region'), { name: 'plain' }] },
    });
    expect(said).toEqual([expect.stringContaining('the tool "bad" was left out')]);
    expect(withoutUnsendable({ id: 1, error: {} }, () => undefined)).toBeNull();
  });
});

test('a bridge asks again after times that double, up to 15 s, and never at once', async () => {
  expect([0, 1, 2, 5, 6, 50].map(backoff)).toEqual([250, 500, 1_000, 8_000, 15_000, 15_000]);
  for (const [attempt, retryMs, ms] of [
    [0, 0, 100],
    [0, null, 250],
    [3, 120, 120],
  ] as const) {
    const began = performance.now();
    await wait(attempt, retryMs, new AbortController().signal);
    const took = performance.now() - began;
    expect(took).toBeGreaterThan(ms - 5);
  }
  const ended = new AbortController();
  ended.abort();
  await wait(10, 60_000, ended.signal);
});

describe('a refusal of the server', () => {
  const refused = (status: number, body: unknown, headers = {}, method = 'tools/call') =>
    refusalOf(
      { where: 'The gateway', status, headers, text: typeof body === 'string' ? body : JSON.stringify(body) },
      method,
      'svc_secret',
      'Put a new key.',
    );

  test('is its own error, where it has one and it is not about the key', () => {
    const error = { code: -32_602, message: 'no', data: { a: 1 } };
    expect(refused(400, { error })).toEqual(error);
    expect(refused(400, { error: { code: 'x' } })).toMatchObject({ code: -32_005 });
  });

  test('says what a person has to do about the key, and does not repeat it', () => {
    const hint = 'Put a new key. An earlier request for the same action may have run.';
    expect(refused(401, { code: 'invalid_key', detail: 'svc_secret is no key, svc_secret!', title: 't' })).toEqual({
      code: -32_001,
      message: 'The gateway refused the key (status 401): … is no key, …!',
      data: { http_status: 401, code: 'invalid_key', did_it_happen: 'maybe', hint },
    });
    expect(refused(403, { error: { code: 1, message: 'may not' } }, {}, 'tools/list')).toMatchObject({
      code: -32_001,
      message: 'The gateway refused the key (status 403): may not',
      data: { did_it_happen: 'no', hint: expect.stringContaining('Ask an administrator') },
    });
  });

  test('has the status, and when to come back', () => {
    expect(refused(503, 'down', { 'retry-after': '7' })).toEqual({
      code: -32_005,
      message: 'The gateway answered with status 503.',
      data: { http_status: 503, retry_after: '7' },
    });
    expect(refused(500, { title: 'x'.repeat(2_000) })['message']).toBe(
      `The gateway answered with status 500: ${'x'.repeat(1_000)}`,
    );
  });
});
