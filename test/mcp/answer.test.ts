import { expect, test } from 'vitest';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import { type AnswerContext, resultOf } from '../../src/mcp/gateway/answer.ts';

/** Done before, by a call whose result is no longer kept as a whole. */
const DONE: RunOutcome = {
  decision: 'duplicate_blocked',
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
