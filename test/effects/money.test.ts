import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import {
  callName,
  currencyOfBucket,
  currencyOfParam,
  moneyOfField,
  moneyTaken,
} from '../../src/effects/model/money.ts';

describe('an amount as people write it', () => {
  it.each([
    ['1234.56', 'EUR', 123_456],
    ['1234', 'EUR', 123_400],
    [' 400,5 ', 'EUR', 40_050],
    ['1,234.56', 'EUR', 123_456],
    ['1 234', 'EUR', 123_400],
    ['1\u00A0234\u202F567.8', 'EUR', 123_456_780],
    ['1,234,567', 'EUR', 123_456_700],
    ['1234', 'JPY', 1234],
    ['1.234', 'BHD', 1234],
  ] as const)('%s in %s is one amount', (text, currency, amount) => {
    expect(moneyOfField(text, currency)).toBe(amount);
  });

  it.each([
    ['1,000', 'EUR'],
    ['1.000,50', 'EUR'],
    ['1.000.000', 'EUR'],
    ['1,234', 'BHD'],
    ['1,00,000.5', 'EUR'],
    ['12,34.5', 'EUR'],
    ['1 23', 'EUR'],
    ['1.234', 'EUR'],
    ['1,5', 'JPY'],
    ['-1', 'EUR'],
    ['1e3', 'EUR'],
    ['', 'EUR'],
  ] as const)('%s in %s is none, or could be two', (text, currency) => {
    expect(moneyOfField(text, currency)).toBeNull();
  });
});

it.each([
  ['["support-bot","EUR"]', 'EUR'],
  ['["EUR"]', 'EUR'],
  ['["EUR","USD"]', null],
  ['["bot","ABC"]', null],
  ['["eur"]', null],
  ['[]', null],
  ['sha256:EUR', null],
])('a budget of the bucket %s counts %s', (bucket, currency) => {
  expect(currencyOfBucket(bucket)).toBe(currency);
});

describe('what a call takes', () => {
  it('is the first amount that a budget counts in a known currency', () => {
    const calls = { unit: 'call', amount: 1 };
    const cents = { unit: 'cent', amount: 80_000 };
    expect(moneyTaken([calls, cents], 'USD')).toEqual({ amount: 80_000, currency: 'USD', text: '$800.00' });
    expect(moneyTaken([calls, { unit: 'CHF-cent', amount: 5 }], 'USD')?.text).toBe('CHF 0.05');
    for (const [costs, named] of [
      [[calls], 'USD'],
      [[cents], undefined],
      [[cents], 'XYZ'],
      [[{ unit: 'cent', amount: null }], 'USD'],
    ] as const)
      expect(moneyTaken(costs, named)).toBeNull();
  });

  it('is what a button names, and else the tool, short enough for it', () => {
    expect(callName('payments.refund', '$800.00')).toBe('$800.00 refund');
    expect(callName('stripe.refund', null)).toBe('stripe.refund');
    expect(callName('a.tool.with.many.parts.of.its.name.refund', null)).toBe('refund');
    expect(callName(`x.${'y'.repeat(60)}`, null)).toBe(`${'y'.repeat(29)}…`);
  });
});

it('a param is an amount of money where budgets of one currency take just its value, and no other param has it', () => {
  const euro = { unit: 'EUR-cent', amount: 500 };
  const of = (costs: readonly { unit: string; amount: number | null }[], more: JsonObject = {}): string | null =>
    currencyOfParam('amount', { amount: 500, ...more }, costs);
  expect([of([euro]), of([euro, { ...euro }])]).toEqual(['EUR', 'EUR']);
  expect(of([{ unit: 'cent', amount: 500 }], { currency: 'USD' })).toBe('USD');
  for (const [costs, more] of [
    [[euro, { unit: 'USD-cent', amount: 500 }], {}],
    [[euro], { fee: 500 }],
    [[{ ...euro, amount: 501 }], {}],
    [[{ unit: 'call', amount: 500 }], {}],
  ] as const)
    expect(of(costs, more), JSON.stringify([costs, more])).toBeNull();
});
