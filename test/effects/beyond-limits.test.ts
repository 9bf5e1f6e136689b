import { describe, expect, it } from 'vitest';
import type { Obligation } from '../../src/effects/model/verdict.ts';
import { aboveLimit, exceededLimits } from '../../src/effects/steps/beyond-limits.ts';

const WINDOW = { kind: 'rolling', ms: 3_600_000 } as const;
const ROW = { budget: 'refunds', unit: 'EUR', bucket: 'bot', window: 'r:3600000' };
const BUDGET: Obligation = {
  kind: 'budget',
  rule: 'shop/large',
  budget: 'refunds',
  unit: 'EUR',
  bucket: 'bot',
  sharing: 'own',
  window: WINDOW,
  limit: 100,
  amount: 30,
  beyond: 'asked',
};
const RATE: Obligation = {
  kind: 'rate_limit',
  rule: 'shop/often',
  id: 'often',
  bucket: 'bot',
  windowMs: 60_000,
  limit: 3,
  beyond: 'asked',
};

/** The limits that a call goes beyond, where 60 EUR are spent, 20 held and two calls counted. */
function exceeded(obligation: Obligation, counted: Partial<Parameters<typeof exceededLimits>[3]> = {}, rate = 2) {
  const view = { rateAsStored: () => rate, budgetAsStored: () => ({ spent: 60, held: 20, rows: 1 }) };
  return exceededLimits(
    view,
    { workspace: 'demo' },
    { obligations: [obligation] },
    { already: [], freed: [], counted: [], ...counted },
  );
}

describe('a budget that asks where a call would go beyond it', () => {
  it('asks for one unit more than is left, and not for what is left', () => {
    expect(exceeded({ ...BUDGET, amount: 20 })).toEqual([]);
    expect(exceeded({ ...BUDGET, amount: 21 })).toEqual(['budget:refunds']);
  });

  it('does not count what this effect holds already, as it is replaced', () => {
    expect(exceeded(BUDGET, { already: [{ ...ROW, amount: 9 }] })).toEqual(['budget:refunds']);
    expect(exceeded(BUDGET, { already: [{ ...ROW, amount: 10 }] })).toEqual([]);
  });

  it('counts what an expired request gives back in the same step', () => {
    const freed = { ...ROW, limit: null, hold: -6, spend: 0 };
    expect(exceeded(BUDGET, { freed: [freed] })).toEqual(['budget:refunds']);
    expect(exceeded(BUDGET, { freed: [freed], already: [{ ...ROW, amount: 4 }] })).toEqual([]);
    expect(exceeded(BUDGET, { freed: [freed, { ...freed, hold: -4 }] })).toEqual([]);
  });

  it.each([{ budget: 'others' }, { bucket: 'other-bot' }, { window: 'r:60000' }])(
    'what another row holds or gives back does not help: %o',
    (other) => {
      const row = { ...ROW, ...other };
      expect(exceeded(BUDGET, { already: [{ ...row, amount: 50 }] })).toEqual(['budget:refunds']);
      expect(exceeded(BUDGET, { freed: [{ ...row, limit: null, hold: -50, spend: 0 }] })).toEqual(['budget:refunds']);
    },
  );

  it('asks neither about an amount that cannot be held nor about a limit that refuses', () => {
    expect(exceeded({ ...BUDGET, amount: null })).toEqual([]);
    const { beyond: _, ...refuses } = BUDGET;
    expect(exceeded({ ...refuses, amount: 1000 })).toEqual([]);
  });
});

describe('a rate that asks', () => {
  it('asks from the call on that is one too many', () => {
    expect(exceeded(RATE, {}, 2)).toEqual([]);
    expect(exceeded(RATE, {}, 3)).toEqual(['rate:often']);
  });

  it('does not ask again about an attempt that was counted when approval was asked for', () => {
    const one = { id: 'often', bucket: 'bot', windowMs: 60_000, limit: 3 };
    expect(exceeded(RATE, { counted: [one] }, 3)).toEqual([]);
    expect(exceeded(RATE, { counted: [{ ...one, bucket: 'other-bot' }] }, 3)).toEqual(['rate:often']);
    expect(exceeded(RATE, { counted: [{ ...one, id: 'other' }] }, 3)).toEqual(['rate:often']);
  });
});

it('of an amount, only what goes beyond the limit is above it', () => {
  const row = { ...ROW, limit: 100, spent: 60, held: 20, resetsAt: null };
  expect(aboveLimit(row, 30)).toBe(10);
  expect(aboveLimit({ ...row, held: 50 }, 30)).toBe(30);
});
