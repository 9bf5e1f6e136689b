import type { BudgetRow } from '../effects/model/effect.ts';
import { quote } from '../json/text.ts';
import type { ReadingTurns } from '../effects/run/reading-turns.ts';
import type { BudgetChange, RateCount } from '../effects/steps/plan.ts';
import { MAX_BUDGET_ROWS } from '../effects/steps/obligations.ts';
import type { Span, SumChange, SumListed, SumName } from '../stores/port.ts';

export function budgetGroup(budget: string): string {
  return `budget ${budget}`;
}

/**
 * A unique name for each row of a budget. It has the lengths of its parts, so that two rows never get the same name.
 */
export function budgetSum({
  budget,
  bucket,
  window,
}: {
  readonly budget: string;
  readonly bucket: string;
  readonly window: string;
}): SumName {
  return {
    name: `budget ${budget.length} ${bucket.length} ${budget} ${bucket} ${window}`,
    span: spanOf(window),
    group: budgetGroup(budget),
  };
}

export function rateSum({
  id,
  bucket,
  windowMs,
}: {
  readonly id: string;
  readonly bucket: string;
  readonly windowMs: number;
}): SumName {
  return {
    name: `rate ${id.length} ${bucket.length} ${id} ${bucket} ${windowMs}`,
    span: { kind: 'rolling', ms: windowMs },
    group: 'rate',
  };
}

/** @param window id of a budget row's window, see `Hold.window` */
function spanOf(window: string): Span {
  return window.startsWith('r:')
    ? { kind: 'rolling', ms: Number(window.slice(2)) }
    : { kind: 'until', end: Number(window.slice(window.lastIndexOf(':') + 1)) };
}

/** Only what takes from a budget is bound by its limit. Giving back, and posting a hold, are not. */
export function budgetChange(change: BudgetChange): SumChange {
  const { limit, hold, spend } = change;
  const { name, span, group } = budgetSum(change);
  return {
    name,
    span,
    group,
    hold,
    spend,
    limit: limit === null ? null : (change.most ?? limit),
    most: limit === null ? null : MAX_BUDGET_ROWS,
    text: limit === null ? null : budgetText(change, limit),
  };
}

/** What readers see of a row of a budget besides its counters. */
export function budgetText(
  { budget, unit, bucket, window }: Pick<BudgetRow, 'budget' | 'unit' | 'bucket' | 'window'>,
  limit: number,
): string {
  return `[${quote(budget)},${quote(unit)},${quote(bucket)},${quote(window)},${limit}]`;
}

export function rateChange(rate: RateCount): SumChange {
  return { ...rateSum(rate), hold: 0, spend: 1, limit: rate.limit, most: null, text: null };
}

export async function budgetRows(
  turns: Pick<ReadingTurns, 'map'>,
  sums: readonly SumListed[],
  now: number,
): Promise<readonly BudgetRow[]> {
  // Of 100,000 rows a sort would hold the thread for a tenth of a second; budgets are few.
  const byName = new Map<string, BudgetRow[]>();
  await turns.map(sums, (sum) => {
    const row = budgetRow(sum, now);
    if (row === null) return;
    const rows = byName.get(row.budget) ?? [];
    if (rows.push(row) === 1) byName.set(row.budget, rows);
  });
  return [...byName].toSorted(([one], [other]) => (one < other ? -1 : 1)).flatMap(([, rows]) => rows);
}

/** A budget row as readers see it; `null` if the counter is not one, or its window is over. */
function budgetRow({ text, spent, held }: SumListed, now: number): BudgetRow | null {
  if (text === '') return null;
  // Only `budgetText` writes the text that is kept with a counter of a budget.
  const [budget, unit, bucket, window, limit] = JSON.parse(text) as readonly [
    budget: string,
    unit: string,
    bucket: string,
    window: string,
    limit: number,
  ];
  const span = spanOf(window);
  const resetsAt = span.kind === 'until' ? span.end : null;
  return resetsAt !== null && resetsAt <= now ? null : { budget, unit, bucket, window, limit, spent, held, resetsAt };
}
