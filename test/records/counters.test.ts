import { expect, it } from 'vitest';
import { MAX_BUDGET_ROWS } from '../../src/effects/steps/obligations.ts';
import { budgetChange, budgetSum, rateSum } from '../../src/records/counters.ts';

it('no two rows of budgets, and no two of rates, have one name', () => {
  const window = 'r:1000';
  const parts = [
    ['a', 'b c'],
    ['a b', 'c'],
    ['a b c', ''],
    ['', 'a b c'],
  ] as const;
  const names = [
    ...parts.map(([budget, bucket]) => budgetSum({ budget, bucket, window }).name),
    ...parts.map(([id, bucket]) => rateSum({ id, bucket, windowMs: 1000 }).name),
    budgetSum({ budget: 'a', bucket: 'b c', window: 'r:2000' }).name,
    rateSum({ id: 'a', bucket: 'b c', windowMs: 2000 }).name,
  ];
  expect(new Set(names).size).toBe(names.length);
});

it('what takes from a budget is bound by its limit and by how many rows there may be; what gives back is not', () => {
  const row = { budget: 'b', unit: 'EUR-cent', bucket: '[]', window: 'r:1000', spend: 0 };
  expect(budgetChange({ ...row, limit: 100, hold: 5 })).toMatchObject({ limit: 100, most: MAX_BUDGET_ROWS });
  expect(budgetChange({ ...row, limit: null, hold: -5 })).toMatchObject({ limit: null, most: null, text: null });
});
