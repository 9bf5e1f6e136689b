import { expect, test } from 'vitest';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import { isJsonObject, type JsonObject } from '../../src/json/value.ts';
import { type AnswerContext, resultOf } from '../../src/mcp/gateway/answer.ts';
import { APPROVAL, OUTCOME } from '../effects/records.ts';

const CALL = {
  ...OUTCOME,
  reason: { code: 'already_committed', message: 'It ran before.' },
  repeat: true,
} as const;

/** Done before, by a call whose result is no longer kept as a whole. */
const DONE: RunOutcome = {
  ...CALL,
  decision: 'duplicate_blocked',
  receipt: { id: 'rcp_1', jws: 'e30.e30.e30' },
  result: { kind: 'message', body: { kind: 'json', value: { content: [] } }, truncated: true },
  resultExpired: false,
};

const CONTEXT: AnswerContext = {
  publicUrl: 'http://gateway',
  policyVersion: 'v1',
  hasOutputSchema: false,
  hasResult: false,
  sameForMs: 60_000,
  isStateless: false,
  hasProbe: false,
  waits: { kind: 'text' },
};

test('an answer without the structured content that its tool promises is an error: official clients throw at it else', () => {
  expect(resultOf(DONE, null, CONTEXT)).not.toHaveProperty('isError');
  expect(resultOf(DONE, null, { ...CONTEXT, hasOutputSchema: true })).toMatchObject({ isError: true });
});

/** The decision in `_meta`, and the line with which the text ends. */
function said(outcome: RunOutcome): { readonly meta: unknown; readonly line: unknown } {
  const { content, _meta: meta } = resultOf(outcome, null, CONTEXT);
  const last = Array.isArray(content) ? content.at(-1) : undefined;
  const text = isJsonObject(last) && typeof last['text'] === 'string' ? last['text'] : '';
  return { meta: isJsonObject(meta) ? meta['dev.svc-gateway/decision'] : undefined, line: JSON.parse(text) };
}

test('programs are told whether to call again and when, beside the result and in the line with which its text ends', () => {
  const running = said({ ...CALL, decision: 'in_progress', retryAfterMs: 5_000 });
  for (const told of [running.meta, running.line])
    expect(told).toMatchObject({ decision: 'in_progress', effect_id: 'eff_1', retry_after_ms: 5_000 });
  for (const safeToRetry of [true, false]) {
    const { meta, line } = said({ ...CALL, decision: 'unknown_effect', safeToRetry, settlement: 'done' });
    expect(meta).toMatchObject({ safe_to_retry: safeToRetry, retry_after_ms: null });
    expect(line).toMatchObject({ safe_to_retry: safeToRetry });
    // Where nothing is said of a time there is nothing to wait for.
    expect(line).not.toHaveProperty('retry_after_ms');
  }
});

test('the line of a refusal has what a model plans anew with: what differs, and what is left of a budget', () => {
  const mismatches = [{ field: 'status', assumed: 'open', current: 'closed' }];
  expect(said({ ...CALL, decision: 'denied_policy', mismatches }).line).toMatchObject({ mismatches });
  const window = { bucket: 'b', window: 'r:1', resetsAt: null };
  const row = { budget: 's/day', unit: 'cent', ...window, limit: 100, spent: 70, held: 10 };
  const budgets = [{ row, sharing: 'own', warnAt: 80 }] as const;
  expect(said({ ...CALL, budgets, decision: 'denied_budget', mismatches: [] }).line).toMatchObject({
    budgets: [{ budget: 's/day', remaining: 20 }],
  });
  // What others spend is not an agent's to know.
  const shared = [{ row, sharing: 'shared', warnAt: 80 }] as const;
  const { line } = said({ ...CALL, budgets: shared, decision: 'denied_budget', mismatches: [] });
  expect(JSON.stringify(line)).toMatch(/"budget":"s\/day"(?!.*remaining)/);
  expect(said({ ...CALL, budgets, decision: 'denied_claim', mismatches: [] }).line).not.toHaveProperty('budgets');
});

const RECEIPT = { id: 'rcp_1', jws: 'e30.e30.e30' };
const GIVEN = { content: [{ type: 'text', text: 'Note 7' }], structuredContent: { id: 7 }, _meta: { theirs: 1 } };
const COMMITTED: RunOutcome = {
  ...CALL,
  repeat: false,
  reason: { code: 'committed', message: 'It happened.' },
  decision: 'committed',
  receipt: RECEIPT,
  result: null,
  answer: null,
  accepted: false,
  responseTruncated: false,
  settlement: 'done',
};
const WAITING: RunOutcome = {
  ...CALL,
  repeat: false,
  reason: { code: 'approval_required', message: 'A note for all.' },
  retryAfterMs: 5_000,
  decision: 'pending_approval',
  approval: {
    ...APPROVAL,
    tool: 'notes.add',
    target: 'notes',
    requester: { ...APPROVAL.requester, keyId: 'key_1' },
    expiresAt: 60_000,
  },
};

const keptMessage = (
  value: object,
): { readonly kind: 'message'; readonly body: { kind: 'json'; value: JsonObject }; readonly truncated: false } => ({
  kind: 'message',
  body: { kind: 'json', value: { ...value } },
  truncated: false,
});

/** The texts of a result, and whether it is an error. */
function read(outcome: RunOutcome, said: JsonObject | null = null, more: Partial<AnswerContext> = {}) {
  const result = resultOf(outcome, said === null ? null : { message: { result: said } }, { ...CONTEXT, ...more });
  const content = Array.isArray(result['content']) ? result['content'] : [];
  const texts = content.map((item) => (isJsonObject(item) && typeof item['text'] === 'string' ? item['text'] : ''));
  return { result, texts, isError: result['isError'] ?? false };
}

test('what the server said to a call that went well is passed on as it is, its own _meta too, with the decision and the receipt beside it', () => {
  expect(read(COMMITTED, GIVEN).result).toEqual({
    ...GIVEN,
    _meta: {
      theirs: 1,
      'dev.svc-gateway/decision': {
        decision: 'committed',
        http_status: 200,
        effect_id: 'eff_1',
        code: 'committed',
        retry_after_ms: null,
        safe_to_retry: true,
        policy_version: 'v1',
      },
      'dev.svc-gateway/receipt': { id: 'rcp_1', url: 'http://gateway/v1/workspaces/demo/effects/eff_1/receipt' },
    },
  });
});

test('a call that was approved meanwhile, or whose answer was lost, gets what the server said', () => {
  const { _meta: _, ...said } = GIVEN;
  for (const outcome of [
    { ...COMMITTED, answer: { kind: 'message', message: said } } as const,
    { ...COMMITTED, result: keptMessage(said) },
    { ...DONE, result: keptMessage(said) },
  ])
    expect(read(outcome).result).toMatchObject(said);
  // What is longer than what is kept cannot be shown, and the call is not to be made again for that.
  const { texts, isError } = read({ ...COMMITTED, result: { ...keptMessage(said), truncated: true } });
  expect([texts[0], isError]).toEqual([expect.stringMatching(/^Done: .*Do not call it again/), false]);
});

test('an equal call whose caller has the result already is told how to run it again on purpose, and not where the receipt is once more', () => {
  const { result, texts, isError } = read({ ...DONE, result: keptMessage(GIVEN) }, null, { hasResult: true });
  expect(isError).toBe(true);
  expect(texts[0]).toMatch(/^Already done: .*wait 60 seconds or send another idempotency-key in _meta/);
  expect(result['structuredContent']).toBeUndefined();
  expect(result['_meta']).toMatchObject({ 'dev.svc-gateway/receipt': { id: 'rcp_1' } });
  expect(Object(result['_meta'])['dev.svc-gateway/receipt']).not.toHaveProperty('url');
  const gone = read({ ...DONE, result: null }, null, { hasResult: true });
  expect(gone.texts[0]).toMatch(/its result cannot be shown, and nothing ran again\. Do not repeat it\.$/);
});

test('a call that waits names the page where people approve it, and says that it has not run', () => {
  const { texts, isError, result } = read(WAITING);
  expect([isError, texts.length]).toEqual([true, 2]);
  expect(texts[0]).toMatch(
    /^Waiting for approval: notes\.add has not run\. .* http:\/\/gateway\/approve\/demo\/apr_1 /,
  );
  expect(JSON.parse(texts[1] ?? '')).toMatchObject({ decision: 'pending_approval', retry_after_ms: 5_000 });
  expect(result['_meta']).toMatchObject({ 'dev.svc-gateway/decision': { http_status: 202 } });
  expect(result['_meta']).not.toHaveProperty(['dev.svc-gateway/receipt']);
});

test('a call that waits is a task for who takes tasks, as often as it is made, and asks a user to visit the page once', () => {
  const task = { kind: 'task', keptMs: 90_000 } as const;
  for (const repeat of [false, true]) {
    const { result } = read({ ...WAITING, repeat }, null, { isStateless: true, waits: task });
    expect(result).toMatchObject({ resultType: 'task', taskId: 'eff_1', status: 'working', ttlMs: 90_000 });
    expect(result['_meta']).toMatchObject({ 'dev.svc-gateway/decision': { decision: 'pending_approval' } });
  }
  const url = { isStateless: true, waits: { kind: 'url' } } as const;
  expect(read(WAITING, null, url).result).toMatchObject({
    resultType: 'input_required',
    inputRequests: {
      'svc-gateway/approval': {
        params: { message: expect.stringMatching(/^notes\.add waits for a person/) as unknown },
      },
    },
  });
  expect(read({ ...WAITING, repeat: true }, null, url)).toMatchObject({
    result: { resultType: 'complete' },
    isError: true,
  });
});

test('a failure says what the server said between the sentence and the decision; a server that asks for more is passed on', () => {
  const failed: RunOutcome = {
    ...CALL,
    repeat: false,
    reason: { code: 'upstream_refused', message: 'the server answered with isError' },
    decision: 'failed',
    answer: null,
    result: null,
    settlement: 'done',
  };
  const refusal = { content: [{ type: 'text', text: 'No such order' }], structuredContent: { code: 4 }, isError: true };
  const { texts, result } = read(failed, refusal);
  expect(texts).toEqual([
    'Not done: The server answered with isError. You may call it again.',
    'No such order',
    expect.stringMatching(/^\{"decision":"failed"/),
  ]);
  expect(result).toMatchObject({ isError: true, structuredContent: { code: 4 } });
  expect(read({ ...failed, retryAfterMs: 91_000 }).texts[0]).toMatch(/You may call it again in 2 minutes\.$/);
  const question = { resultType: 'input_required', inputRequests: { a: {} } };
  expect(read(failed, question).result).toMatchObject(question);
  expect(read(failed, question).isError).toBe(false);
});

test('where nobody knows the outcome the model reads what the server said, and whether to ask, probe or tell its user', () => {
  const lost = { ...CALL, decision: 'unknown_effect', safeToRetry: false, settlement: 'done' } as const;
  const refusal = { content: [{ type: 'text', text: 'It broke' }], isError: true };
  const { texts, isError } = read({ ...lost, repeat: false }, refusal);
  expect([texts[1], isError]).toEqual(['It broke', true]);
  expect(texts[0]).toMatch(/Do not try it in another way: .*tell your user/);
  expect(read(lost, null, { hasProbe: true }).texts[0]).toContain(
    'svc.executions.probe, or POST http://gateway/v1/workspaces/demo/effects/eff_1/probe',
  );
  const safe = read({ ...lost, safeToRetry: true }, null, { hasProbe: true }).texts[0];
  expect(safe).toMatch(/Call it again with exactly the same arguments: the server removes duplicates\.$/);
  for (const [repeat, status] of [
    [false, 504],
    [true, 409],
  ] as const)
    expect(read({ ...lost, repeat }).result['_meta']).toMatchObject({
      'dev.svc-gateway/decision': { http_status: status },
    });
});

test.each([
  ['wait', 90_000, 'Call it again in 90 seconds.'],
  ['wait', 90_001, 'Call it again in 2 minutes.'],
  ['wait', 5_400_001, 'Call it again in 2 hours.'],
  ['wait', 1, 'Call it again in 1 second.'],
  ['retry', null, 'Call it again later.'],
  ['replan', null, 'Read how things stand now, and plan anew.'],
  ['block', null, 'Do not try it again or in another way; tell your user.'],
] as const)('a refusal whose next step is %s, in %s ms, ends: %s', (next, retryAfterMs, advice) => {
  const refused: RunOutcome = { ...CALL, decision: 'denied_claim', mismatches: [], next, retryAfterMs };
  expect(read(refused).texts[0]).toMatch(/^Refused, nothing happened: It ran before\. /);
  expect(read(refused).texts[0]?.endsWith(advice)).toBe(true);
});

test('only in the revision without sessions a result says that it is complete', () => {
  const denied: RunOutcome = { ...CALL, decision: 'denied_policy', mismatches: [] };
  expect(read(denied).result).not.toHaveProperty('resultType');
  for (const outcome of [denied, DONE, { ...DONE, result: keptMessage({ content: [] }) }])
    expect(read(outcome, null, { isStateless: true }).result['resultType']).toBe('complete');
});

test('a key that belongs to another action is told in a sentence', () => {
  const { texts, isError } = read({ ...CALL, decision: 'idempotency_conflict' });
  expect([texts[0], isError]).toEqual(['Not done: It ran before.', true]);
});
