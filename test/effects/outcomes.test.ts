import { expect, test } from 'vitest';
import { BUSY, type Hold } from '../../src/effects/model/effect.ts';
import { failedReason, settledBudgets } from '../../src/effects/run/to-outcome.ts';

const ROW = { budget: 'b', unit: 'calls', bucket: 'x', window: 'r:1', limit: 100, spent: 10, held: 30, resetsAt: null };
const HOLD: Hold = { budget: 'b', unit: 'calls', bucket: 'x', window: 'r:1', amount: 20 };

test.each<[string, Hold, Parameters<typeof settledBudgets>[2], { held: number; spent: number }]>([
  ['committed: posted', HOLD, { decision: 'committed' }, { held: 10, spent: 30 }],
  [
    'committed for less: what was spent is posted',
    HOLD,
    { decision: 'committed', amounts: { calls: 5 } },
    { held: 10, spent: 15 },
  ],
  ['failed: given back', HOLD, { decision: 'failed' }, { held: 10, spent: 10 }],
  ['unknown: kept', HOLD, { decision: 'unknown_effect' }, { held: 30, spent: 10 }],
  ['of another budget', { ...HOLD, budget: 'c' }, { decision: 'committed' }, { held: 30, spent: 10 }],
  ['of another bucket', { ...HOLD, bucket: 'y' }, { decision: 'committed' }, { held: 30, spent: 10 }],
  ['of another window', { ...HOLD, window: 'r:2' }, { decision: 'committed' }, { held: 30, spent: 10 }],
])('a hold after the outcome, %s', (_, hold, outcome, { held, spent }) => {
  expect(settledBudgets([ROW], [hold], outcome)).toEqual([{ ...ROW, held, spent }]);
});

test.each([
  [BUSY, 'upstream_busy'],
  ['connect_failed', 'connect_failed'],
  ['http_status', 'upstream_refused'],
])('an attempt that failed by %s has the reason %s', (code, reason) => {
  expect(failedReason({ code, message: 'It did' }).code).toBe(reason);
});
