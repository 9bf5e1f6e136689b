import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { McpCall } from '../../../src/effects/model/tool.ts';
import type { ProxiedMessage } from '../../../src/effects/upstream.ts';
import type { JsonObject } from '../../../src/json/value.ts';
import { inSharedSession, ownCall } from '../../../src/upstreams/mcp/shared-session.ts';

/** A call of a client in a session that others use, too, and what becomes of what the server says. */
function shared(rest: JsonObject, own: JsonObject = {}) {
  const passed: string[] = [];
  const ended: JsonObject[] = [];
  const refused: unknown[] = [];
  const answers: JsonObject[] = [];
  const taken: (() => void)[] = [];
  const proxied: ProxiedMessage = {
    kind: 'message',
    id: 'client-1',
    rest,
    headers: { traceparent: 't', 'mcp-session-id': 'of the client' },
    sessionOf: 'bot',
    signal: new AbortController().signal,
    hears: {
      began: () => undefined,
      passed: (event) => void passed.push(event.toString()),
      ended: (message) => void ended.push(message),
      refused: (answer) => void refused.push(answer),
    },
  };
  const headers = { 'mcp-session-id': 'of the gateway' };
  const sent = inSharedSession(proxied, { id: 7, rest: own, headers }, (message) => {
    answers.push(message);
    return new Promise((resolve) => taken.push(resolve));
  });
  const says = (message: JsonObject | null): void => void sent.hears.passed(Buffer.from('as it came'), message);
  return { sent, says, passed, ended, refused, answers, taken };
}

const progress = (token: number | string, more: JsonObject = {}): JsonObject => ({
  jsonrpc: '2.0',
  method: 'notifications/progress',
  params: { progressToken: token, progress: 1 },
  ...more,
});

test('a call has an id, a token and a session of the gateway’s own; the client’s other words go on', () => {
  const { sent } = shared(
    { _meta: { progressToken: 't1', note: 'n', who: 'the client' } },
    { _meta: { who: 'the gateway' } },
  );
  expect(sent.id).toBe(7);
  expect(sent.rest).toEqual({ _meta: { progressToken: 7, note: 'n', who: 'the gateway' } });
  expect(sent.headers).toEqual({ traceparent: 't', 'mcp-session-id': 'of the gateway' });
  expect(shared({}).sent.rest).toEqual({});
  expect(shared({ _meta: {} }).sent.rest).toEqual({ _meta: {} });
});

test('the answer comes back under the client’s id', () => {
  const { sent, ended } = shared({});
  sent.hears.ended({ jsonrpc: '2.0', id: 7, result: { a: 1 } }, 'id: of the session\n');
  expect(ended).toEqual([{ jsonrpc: '2.0', id: 'client-1', result: { a: 1 } }]);
});

test('what the server answered in place of a message goes on as it came', () => {
  const { sent, refused } = shared({});
  const answer = { kind: 'http', status: 429, headers: { 'retry-after': '7' }, body: Buffer.from('later') } as const;
  sent.hears.refused(answer);
  expect(refused).toEqual([answer]);
});

test('of events only progress of this call goes on, under the client’s token; comments keep the connection', () => {
  const { says, passed } = shared({ _meta: { progressToken: 't1' } });
  says(progress(7));
  says(progress(8));
  says(progress('t1'));
  says({ jsonrpc: '2.0', method: 'notifications/progress', params: { progress: 1 } });
  says(progress(7, { id: null }));
  says({ jsonrpc: '2.0', method: 'notifications/message', params: { progressToken: 7 } });
  says({ jsonrpc: '2.0', id: 99, result: { of: 'another' } });
  says(null);
  expect(passed).toEqual([`data: ${JSON.stringify(progress('t1'))}\n\n`, ':\n\n']);
  const silent = shared({});
  silent.says(progress(7));
  expect(silent.passed).toEqual([]);
});

test('a server that asks hears at once that nobody answers, and that somebody is there', () => {
  const { says, passed, answers } = shared({ _meta: { progressToken: 't1' } });
  says({ jsonrpc: '2.0', id: 'q1', method: 'elicitation/create', params: {} });
  says({ jsonrpc: '2.0', id: 0, method: 'ping' });
  says({ jsonrpc: '2.0', id: 5, method: 'notifications/progress', params: { progressToken: 7 } });
  expect(answers).toMatchObject([
    { id: 'q1', error: { code: -32_601 } },
    { id: 0, result: {} },
    { id: 5, error: {} },
  ]);
  expect(passed).toEqual([]);
});

test('a server that asks faster than it hears is not answered more than so often at once', async () => {
  const { says, answers, taken } = shared({});
  const asks = (): void => {
    for (let id = 0; id < 100; id += 1) says({ jsonrpc: '2.0', id, method: 'ping' });
  };
  asks();
  expect(answers).toHaveLength(16);
  for (const take of taken.splice(0)) take();
  await setImmediate();
  asks();
  expect(answers).toHaveLength(32);
});

test('a call without a session says in its headers what it calls and what its tool declares, in the form of headers', () => {
  const headers = { 'mcp-protocol-version': '2026-07-28' };
  const pinned = {
    inputSchema: { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } } },
  };
  const call: McpCall = { kind: 'mcp', name: 'zahlé', pinned, isError: 'unknown', onClientClose: 'finish' };
  const params = { region: 'Île' };
  expect(ownCall({ id: 7, begun: { kind: 'stateless', headers, meta: { who: 'the gateway' } } }, call, params)).toEqual(
    {
      id: 7,
      rest: { _meta: { who: 'the gateway' } },
      headers: {
        ...headers,
        'mcp-method': 'tools/call',
        'mcp-name': `=?base64?${Buffer.from('zahlé').toString('base64')}?=`,
        'mcp-param-region': `=?base64?${Buffer.from('Île').toString('base64')}?=`,
      },
    },
  );
  const session = { 'mcp-session-id': 's1' };
  const own = ownCall({ id: 8, begun: { kind: 'session', headers: session, isNamed: true } }, call, params);
  expect(own).toEqual({ id: 8, rest: {}, headers: session });
});
