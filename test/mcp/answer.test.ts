import { expect, test } from 'vitest';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import { isJsonObject } from '../../src/json/value.ts';
import { type AnswerContext, resultOf } from '../../src/mcp/gateway/answer.ts';

const CALL = {
  workspace: 'demo',
  effectId: 'eff_1',
  tool: 'notes.add',
  target: 'notes',
  agentId: 'bot',
  idempotencyKey: 'k',
  attempt: 1,
  reason: { code: 'already_committed', message: 'It ran before.' },
  budgets: [],
  observed: null,
  repeat: true,
  retryAfterMs: null,
  next: null,
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
  expect(said({ ...CALL, budgets, decision: 'denied_claim', mismatches: [] }).line).not.toHaveProperty('budgets');
});
