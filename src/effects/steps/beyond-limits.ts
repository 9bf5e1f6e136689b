import type { ApprovalRecord } from '../model/approval.ts';
import type { BudgetRow, Hold } from '../model/effect.ts';
import { limitName, type Obligation, type Permit, windowId } from '../model/verdict.ts';
import type { AdmitRequest } from '../store.ts';
import type { BudgetChange, StepView } from './plan.ts';

/* Limits that ask people where a call would go beyond them. */

const NOTHING: readonly never[] = [];

/** What counts in a call's favour, or was counted before. */
export interface Counted {
  /** Earlier holds of the effect, which this attempt replaces. */
  readonly already: readonly Hold[];
  /** What else the same step gives back: holds of a request that has expired. */
  readonly freed: readonly BudgetChange[];
  /** Rates that were counted already, when approval was asked for. A call that approvers changed may fall under others. */
  readonly counted: NonNullable<ApprovalRecord['rates']>;
}

/**
 * The limits that ask, and that the call would go beyond now. By the store's figures: whether people are asked cannot
 * rest on what a gateway assumes.
 */
export function exceededLimits(
  view: Pick<StepView, 'rateAsStored' | 'budgetAsStored'>,
  { workspace }: Pick<AdmitRequest, 'workspace'>,
  { obligations }: Pick<Permit, 'obligations'>,
  { already, freed, counted }: Counted,
): readonly string[] {
  let exceeded: readonly string[] = NOTHING;
  for (const obligation of obligations) {
    if (obligation.kind === 'rate_limit' && obligation.beyond !== undefined) {
      const { id, bucket, windowMs, limit } = obligation;
      if (counted.some((rate) => rate.id === id && rate.bucket === bucket)) continue;
      if (view.rateAsStored(workspace, id, bucket, windowMs) < limit) continue;
      exceeded = [...exceeded, limitName(obligation)];
    }
    if (obligation.kind === 'budget' && obligation.beyond !== undefined) {
      const { budget, bucket, amount, limit } = obligation;
      const window = windowId(obligation.window);
      const { spent, held } = view.budgetAsStored(workspace, budget, bucket, window);
      const own = already
        .filter((hold) => isRow(hold, budget, bucket, window))
        .reduce((sum, one) => sum + one.amount, 0);
      const back = freed.filter((one) => isRow(one, budget, bucket, window)).reduce((sum, one) => sum - one.hold, own);
      if (amount === null || amount <= limit - spent - held + back) continue;
      exceeded = [...exceeded, limitName(obligation)];
    }
  }
  return exceeded;
}

function isRow(
  one: Pick<BudgetChange, 'budget' | 'bucket' | 'window'>,
  budget: string,
  bucket: string,
  window: string,
): boolean {
  return one.budget === budget && one.bucket === bucket && one.window === window;
}

/** Whether a limit is one of those that are exceeded, and asks. */
export function isAmongLimits(
  exceeded: readonly string[],
  obligation: Extract<Obligation, { kind: 'budget' | 'rate_limit' }>,
): boolean {
  return obligation.beyond !== undefined && exceeded.includes(limitName(obligation));
}

/** Whether the permit asks about just these limits; once people have agreed, about all of these. */
export function isAskedAbout(
  { obligations, approvals }: Permit,
  exceeded: readonly string[],
  isGranted: boolean,
): boolean {
  let asked = 0;
  for (const obligation of obligations)
    if ('beyond' in obligation && obligation.beyond === 'asked') {
      const limit = limitName(obligation);
      if (exceeded.includes(limit) && approvals.some(({ beyond }) => beyond === limit)) asked += 1;
      else if (!isGranted) return false;
    }
  return asked === exceeded.length;
}

/** How much of an amount is above the limit. */
export function aboveLimit({ limit, spent, held }: BudgetRow, amount: number): number {
  return Math.min(amount, spent + held + amount - limit);
}
