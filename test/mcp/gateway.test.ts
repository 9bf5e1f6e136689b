import { createSecretKey } from 'node:crypto';
import { expect, test } from 'vitest';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { withoutAnswerToUs } from '../../src/mcp/gateway/approval-url.ts';
import { headersNamed } from '../../src/mcp/gateway/arrival.ts';
import { answeredEarly, openedRound, sealedRound } from '../../src/mcp/gateway/input-rounds.ts';
import { mayNotify, treatmentOf } from '../../src/mcp/gateway/methods.ts';
import { visibleTools } from '../../src/mcp/gateway/plugin.ts';
import { createLiveCalls } from '../../src/mcp/gateway/live-calls.ts';
import { sentenceOf } from '../../src/mcp/gateway/answer.ts';
import { openSession, sealHeaders, sealSession } from '../../src/mcp/gateway/sessions.ts';

const KEY = createSecretKey(Buffer.alloc(32, 1));
const OWNER = { upstream: 'crm', workspace: 'demo', agentId: 'bot' };

test('a session opens for its owner alone, with what its client has said of addresses', () => {
  for (const takesUrls of [true, false]) {
    const sealed = sealSession(KEY, OWNER, { id: 's.1', takesUrls }) ?? '';
    expect(openSession(KEY, OWNER, sealed)).toEqual({ id: 's.1', takesUrls });
    for (const other of [{ upstream: 'erp' }, { workspace: 'live' }, { agentId: 'cat' }])
      expect(openSession(KEY, { ...OWNER, ...other }, sealed)).toBeNull();
    expect(openSession(createSecretKey(Buffer.alloc(32, 2)), OWNER, sealed)).toBeNull();
    expect(openSession(KEY, OWNER, sealed.replace('s.1', 's.2'))).toBeNull();
    expect(openSession(KEY, OWNER, sealed.slice(0, -1))).toBeNull();
  }
});

test('an id that is too long, or cannot stand in a header, is none: the answer comes without it', () => {
  const seal = (id: string) => sealSession(KEY, OWNER, { id, takesUrls: false });
  expect(seal('x'.repeat(1_024))).toMatch(/^x{1024}\.[\w-]{43}$/);
  for (const id of ['x'.repeat(1_025), 'a b', 'ü', '', 'a\n']) expect(seal(id)).toBeNull();
  const headers = { 'content-type': 'text/plain', 'mcp-session-id': 'a b' };
  expect(sealHeaders(headers, seal)).toEqual({ headers: { 'content-type': 'text/plain' }, unsealed: true });
  expect(sealHeaders({ ...headers, 'mcp-session-id': ['a', 'b'] }, seal).unsealed).toBe(true);
  expect(sealHeaders({ ...headers, 'mcp-session-id': 'a' }, seal)).toEqual({
    headers: { ...headers, 'mcp-session-id': seal('a') },
    unsealed: false,
  });
  expect(sealHeaders({}, seal)).toEqual({ headers: {}, unsealed: false });
});

test('a call is cancelled in its own session only, and an id that is used again is that of the later call', () => {
  const live = createLiveCalls();
  const call = { sentAs: 7, onClientClose: 'abort', abort: () => undefined } as const;
  const later = { ...call };
  const leave = live.enter('s1', 1, call);
  expect([live.of('s1', 1), live.of('s2', 1), live.of('s1', '1')]).toEqual([call, null, null]);
  const leaveLater = live.enter('s1', 1, later);
  leave();
  expect(live.of('s1', 1)).toBe(later);
  leaveLater();
  expect(live.of('s1', 1)).toBeNull();
});

test('of the effects whose results were given the last ten thousand are remembered', () => {
  const live = createLiveCalls();
  for (let effect = 0; effect < 10_000; effect += 1) live.gave(`eff_${effect}`);
  expect([live.hasGiven('eff_0'), live.hasGiven('eff_9999'), live.hasGiven('eff_10000')]).toEqual([true, true, false]);
  live.gave('eff_10000');
  expect([live.hasGiven('eff_0'), live.hasGiven('eff_1'), live.hasGiven('eff_10000')]).toEqual([false, true, true]);
});

test('what a server asks is answered within the call that it asked about, and by nothing that it did not ask for', () => {
  const call = { owner: OWNER, tool: 'crm.note', given: { a: 1, b: 2 } };
  const asked = { resultType: 'input_required', inputRequests: { name: {}, age: {} }, requestState: 'of the server' };
  const { requestState: sealed, ...shown } = sealedRound(KEY, call, asked);
  if (typeof sealed !== 'string') throw new Error('there is no state');
  expect(shown).toEqual({ resultType: 'input_required', inputRequests: asked.inputRequests });
  const inputResponses = { name: 'ann', colour: 'red' };
  const opened = (changes: Partial<typeof call>, answer: JsonObject = { inputResponses, requestState: sealed }) =>
    openedRound(KEY, { ...call, ...changes }, answer);
  expect(opened({ given: { b: 2, a: 1 } })).toEqual({ inputResponses: { name: 'ann' }, requestState: 'of the server' });
  expect(opened({}, { requestState: sealed })).toEqual({ requestState: 'of the server' });
  // What was not asked for by a state of ours is not passed on at all.
  expect(opened({}, { inputResponses })).toEqual({});
  for (const other of [
    { given: { a: 1, b: 3 } },
    { tool: 'crm.erase' },
    { owner: { ...OWNER, agentId: 'cat' } },
    { owner: { ...OWNER, workspace: 'live' } },
    { owner: { ...OWNER, upstream: 'erp' } },
  ])
    expect(opened(other)).toBeNull();
  // Without a state of its own the server gets none; one that is longer than ids of sessions comes back whole.
  for (const state of [{}, { requestState: 'x'.repeat(20_000) }]) {
    const { requestState: ours = null } = sealedRound(KEY, call, { inputRequests: { name: {} }, ...state });
    expect(opened({}, { inputResponses, requestState: ours })).toEqual({ inputResponses: { name: 'ann' }, ...state });
  }
  for (const requestState of ['of the server', 1, `${sealed}x`]) expect(opened({}, { requestState })).toBeNull();
});

test('an answer that came before the question is passed on once the server has asked for it', () => {
  const last = (result: JsonObject) => ({ message: { result } });
  const asks = { resultType: 'input_required', inputRequests: { name: {} }, requestState: 's' };
  const inputResponses = { name: 'ann', colour: 'red' };
  expect(answeredEarly({ inputResponses }, last(asks))).toEqual({
    inputResponses: { name: 'ann' },
    requestState: 's',
  });
  expect(answeredEarly({ inputResponses: { colour: 'red' } }, last(asks))).toBeNull();
  expect(answeredEarly({ inputResponses, requestState: 'x' }, last(asks))).toBeNull();
  expect(answeredEarly({ inputResponses }, last({ ...asks, resultType: 'complete' }))).toBeNull();
  expect(answeredEarly({ inputResponses }, null)).toBeNull();
});

test.each([
  ['resources/read', 'judge'],
  ['resources/subscribe', 'judge'],
  ['resources/unsubscribe', 'judge'],
  ['prompts/get', 'judge'],
  ['completion/complete', 'judge'],
  ['subscriptions/listen', 'judge'],
  ['tools/call', 'govern'],
  ['tools/list', 'list_tools'],
  ['initialize', 'introduce'],
  ['server/discover', 'introduce'],
  ['ping', 'pass'],
  ['resources/list', 'pass'],
  ['resources/templates/list', 'pass'],
  ['prompts/list', 'pass'],
  ['logging/setLevel', 'pass'],
  ['tasks/get', 'task'],
  ['tasks/update', 'task'],
  ['tasks/cancel', 'task'],
])('what becomes of %s (%s) no configuration loosens', (method, treatment) => {
  expect([treatmentOf(method, []), treatmentOf(method, [method])]).toEqual([treatment, treatment]);
});

test('a method that nobody knows is refused, unless the configuration names it', () => {
  for (const method of ['tools/callx', 'Tools/call', 'constructor', 'x/y'])
    expect([treatmentOf(method, ['other']), treatmentOf(method, [method])], method).toEqual(['deny', 'pass']);
});

test('tools are shown in the order of their names, and only those that may be seen', () => {
  const tools = ['zeta', 'Alpha', 'beta', 'alpha', 'hidden'].map((name) => ({ name }));
  const shown = visibleTools([...tools, 'no tool', { name: 7 }], (name) => name !== 'hidden' && name !== '');
  expect(shown).toEqual([{ name: 'Alpha' }, { name: 'alpha' }, { name: 'beta' }, { name: 'zeta' }]);
});

const OUTCOME = {
  workspace: 'demo',
  effectId: 'eff_1',
  tool: 'crm.note',
  target: 't',
  agentId: 'bot',
  idempotencyKey: 'k',
  attempt: 1,
  reason: { code: 'executing', message: 'The action is running' },
  budgets: [],
  observed: null,
  repeat: true,
  retryAfterMs: null,
  next: null,
} as const;
const says = (outcome: RunOutcome, more: Partial<Parameters<typeof sentenceOf>[1]> = {}): string =>
  sentenceOf(outcome, { publicUrl: 'http://g.test', next: 'block', sameForMs: 600_000, hasProbe: false, ...more });

test.each([
  [null, '1 second'],
  [0, '1 second'],
  [1_000, '1 second'],
  [1_001, '2 seconds'],
  [90_000, '90 seconds'],
  [90_001, '2 minutes'],
  [5_400_000, '90 minutes'],
  [5_400_001, '2 hours'],
  [86_400_000, '24 hours'],
])('a model is told to wait: %s ms, %s', (retryAfterMs, words) => {
  expect(says({ ...OUTCOME, decision: 'in_progress', retryAfterMs })).toContain(
    `the same arguments in ${words} to get`,
  );
});

test('a model is told what to do about a refusal by what helps', () => {
  const refused = (next: Parameters<typeof sentenceOf>[1]['next'], retryAfterMs: number | null = null): string =>
    says(
      {
        ...OUTCOME,
        decision: 'denied_paused',
        reason: { code: 'paused', message: 'paused' },
        retryAfterMs,
        mismatches: [],
      },
      { next },
    );
  const start = 'Refused, nothing happened: Paused.';
  expect(refused('wait', 5_000)).toBe(`${start} Do not try it in another way. Call it again in 5 seconds.`);
  expect(refused('retry')).toBe(`${start} Do not try it in another way. Call it again later.`);
  expect(refused('replan')).toBe(`${start} Read how things stand now, and plan anew.`);
  expect(refused('block')).toBe(`${start} Do not try it again or in another way; tell your user.`);
});

test('headers that go on to a server are those that it is to have, and no cookie of the console', () => {
  const headers = {
    cookie: 'a=b; svc_console=secret; __Host-svc_console=secret',
    traceparent: 't',
    authorization: 'x',
  };
  expect(headersNamed({ headers }, ['cookie', 'traceparent', 'baggage'])).toEqual({ cookie: 'a=b', traceparent: 't' });
});

test('what a client answers to the gateway itself goes to no server, and what it answers to a server does', () => {
  const ours = { 'svc-gateway/approval': { action: 'accept' } };
  const theirs = { name: 'ann' };
  const call = { name: 'pay', arguments: {} };
  expect(withoutAnswerToUs({ ...call, inputResponses: ours })).toEqual(call);
  expect(withoutAnswerToUs({ ...call, inputResponses: { ...ours, ...theirs } })).toEqual({
    ...call,
    inputResponses: theirs,
  });
  for (const params of [call, { ...call, inputResponses: theirs }, { ...call, inputResponses: [ours] }])
    expect(withoutAnswerToUs(params)).toBe(params);
});

test('the usual notifications pass, and of others those that the configuration names', () => {
  for (const name of ['initialized', 'cancelled', 'progress', 'roots/list_changed'])
    expect(mayNotify(`notifications/${name}`, []), name).toBe(true);
  for (const method of ['notifications/elsewhere', 'tools/call', 'notifications/message']) {
    expect(mayNotify(method, ['notifications/other']), method).toBe(false);
    expect(mayNotify(method, [method]), method).toBe(true);
  }
});
