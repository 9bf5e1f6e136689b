import { expect, test } from 'vitest';
import type { KeptResult } from '../../src/effects/model/answer.ts';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import { outcomeAnswer } from '../../src/proxy/answer.ts';
import { BOT } from './principal.ts';
import { UPLOADS } from './uploads.ts';

const PORTS: Parameters<typeof outcomeAnswer>[0] = {
  receiptView: () => ({}),
  renderProblem: () => ({ status: 500, headers: {}, body: {} }),
  settings: () => ({
    publicUrl: 'http://gateway',
    queryKey: 'allow',
    bodyLimit: 1000,
    jsonLimits: { depth: 10, values: 100 },
    uploads: UPLOADS,
  }),
  upstream: () => null,
};

function answerOf(truncated: boolean, kept?: KeptResult): ReturnType<typeof outcomeAnswer> {
  const outcome: RunOutcome = {
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
    result: kept ?? {
      kind: 'http',
      status: 201,
      headers: {},
      body: { kind: 'text', value: 'the first pa' },
      truncated,
    },
    resultExpired: false,
  };
  return outcomeAnswer(
    PORTS,
    { kind: 'outcome', outcome },
    {
      request: { id: 'req_1', method: 'POST', keyed: true },
      principal: BOT,
      prefix: '/shop',
      upstream: 'shop',
      setCookie: false,
      origin: () => 'https://gateway.test',
      foreignLinks: 'hide',
      links: [],
      onDuplicate: 'replay',
      pendingStatus: 202,
      style: { errorFormat: 'problem', finalStatus: null },
    },
  );
}

test('on_duplicate: replay gives the whole stored answer; of one that was cut it gives the decision', () => {
  expect(answerOf(false)).toMatchObject({
    status: 201,
    headers: { 'idempotency-replayed': 'true' },
    body: 'the first pa',
  });
  const cut = answerOf(true);
  expect(cut.status).toBe(409);
  expect(cut.headers).not.toHaveProperty('idempotency-replayed');
  expect(JSON.parse(String(cut.body))).toMatchObject({ decision: 'duplicate_blocked', effect_id: 'eff_1' });
});

test('an answer of another kind is not replayed as if it were HTTP: the decision has it as its result', () => {
  const message = { kind: 'message', body: { kind: 'json', value: { isError: false } }, truncated: false } as const;
  const answer = answerOf(false, message);
  expect(answer.status).toBe(409);
  expect(JSON.parse(String(answer.body))).toMatchObject({
    decision: 'duplicate_blocked',
    result: { isError: false },
  });
});
