import { expect, it } from 'vitest';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import { outcomeHeaders, renderOutcome } from '../../src/effects/run/render.ts';
import { OUTCOME } from './records.ts';

const DENIED: RunOutcome = {
  decision: 'denied_policy',
  ...OUTCOME,
  attempt: 2,
  reason: { code: 'key_closed', message: 'It contradicts itself.' },
  mismatches: [],
};

it.each([
  [null, undefined],
  [0, '1'],
  [1, '1'],
  [999, '1'],
  [1_000, '1'],
  [1_001, '2'],
  [90_500, '91'],
])(
  'what is to be waited for %s ms has the header Retry-After: %s, never less than a second',
  (retryAfterMs, header) => {
    const reason = { code: 'rate_limited', message: 'Wait.' } as const;
    const outcome: RunOutcome = { ...DENIED, decision: 'denied_budget', reason, retryAfterMs };
    expect(outcomeHeaders(outcome)['retry-after']).toBe(header);
  },
);

it('what is refused because evidence contradicts itself is not safe to send again, though this call did nothing', () => {
  const context = { publicUrl: '', receiptView: () => ({}), forAgent: true, hasProbe: () => false };
  expect(renderOutcome(DENIED, context).body).toMatchObject({ did_it_happen: 'no', safe_to_retry: false });
  const exhausted = { ...DENIED, reason: { code: 'attempts_exhausted', message: 'Ten times.' } } as const;
  expect(renderOutcome(exhausted, context).body).toMatchObject({ did_it_happen: 'no', safe_to_retry: true });
});

it.each([
  ['it said how long', 2_000, true, 'true'],
  ['it did not say how long', null, true, 'true'],
  ['another try would not be sent', 2_000, false, 'false'],
] as const)('libraries send again what found the upstream busy, where %s', (_what, retryAfterMs, asks, header) => {
  const failed: RunOutcome = {
    ...DENIED,
    decision: 'failed',
    reason: { code: 'upstream_busy', message: 'It was busy.' },
    retryAfterMs,
    answer: null,
    result: null,
    settlement: 'done',
    ...(asks ? { askAgain: true } : null),
  };
  expect(outcomeHeaders(failed)['x-should-retry']).toBe(header);
});
