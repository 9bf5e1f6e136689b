import { expect, it } from 'vitest';
import { cellText, exportLine } from '../../src/effects/wire/export.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { receiptInput } from '../receipts/facts.ts';

it.each([
  ['=1+2', "'=1+2"],
  ['+1', "'+1"],
  ['-1', "'-1"],
  ['@SUM(A1)', "'@SUM(A1)"],
  ['\t=1', "'\t=1"],
  ['\r=1', `"'\r=1"`],
  ['\n=1', `"'\n=1"`],
  ['＝1+2', "'＝1+2"],
  ['＠SUM(A1)', "'＠SUM(A1)"],
  ['=1,"x"', `"'=1,""x"""`],
  ['order-7=8', 'order-7=8'],
])('a text that a spreadsheet would run is marked as text: %j', (text, cell) => {
  expect(cellText(text)).toBe(cell);
});

const REQUEST = {
  workspace: 'demo',
  publicUrl: '',
  filter: { since: null, until: null },
  what: ['effects'],
  form: 'csv',
} as const;
const NO_CONTEXT = (): never => {
  throw new Error('a row has no context');
};

it('a row has no time at which the outcome was on record as long as it is not known', () => {
  const { effect, evidence } = receiptInput();
  const lease = {
    fence: { epoch: 1, n: 1, nonce: '' },
    owner: 'gw',
    admittedAt: 1,
    dispatchBy: 1,
    leaseEnd: 1,
    quiesceUntil: 1,
  };
  const settledIn = (life: EffectRecord['life']): string | undefined =>
    exportLine(
      { type: 'effect', effect: { ...effect, holds: [], life }, decided: { by: [], at: null } },
      REQUEST,
      NO_CONTEXT,
    )
      .trimEnd()
      .split(',')
      .at(-3);
  expect(settledIn({ state: 'unknown', at: 9, lease, evidence })).toBe('');
  expect(settledIn({ state: 'executing', lease })).toBe('');
  expect(settledIn({ state: 'rejected', at: 0, approvalId: 'apr_1', until: 9 })).toBe('1970-01-01T00:00:00.000Z');
});

it('a row of an effect has all rules that matched, and all who approved, in one cell each', () => {
  const { effect, evidence, settledBy } = receiptInput();
  const life = { state: 'failed', at: Date.UTC(2026, 4, 7), settledBy, evidence, result: null } as const;
  const item = {
    type: 'effect',
    effect: { ...effect, life } satisfies EffectRecord,
    decided: { by: ['maria', 'tom'], at: Date.UTC(2026, 4, 6) },
  } as const;
  const cells = exportLine(item, REQUEST, NO_CONTEXT).trimEnd().split(',');
  expect(cells).toContain('payments/refund-small payments/night');
  expect(cells).toContain('maria tom');
  expect(cells.slice(-4)).toEqual(['2026-05-06T00:00:00.000Z', '2026-05-07T00:00:00.000Z', '5000', 'cents']);
  // Of several budgets the one of money counts, in its currency.
  const [hold] = effect.holds;
  if (hold === undefined) throw new Error('it has a hold');
  const holds = [
    { ...hold, unit: 'calls', amount: 1 },
    { ...hold, unit: 'EUR_cents' },
  ];
  const paid = exportLine({ ...item, effect: { ...item.effect, holds } }, REQUEST, NO_CONTEXT);
  expect(paid.trimEnd().split(',').slice(-2)).toEqual(['50.00', 'EUR']);
});
