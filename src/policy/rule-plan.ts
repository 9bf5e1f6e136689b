import type { ValueTable } from './expression.ts';
import type { FactPath } from './fact-path.ts';
import type { CompiledApproval, CompiledRule } from './compiled-rule.ts';
import type { SchedulePlan } from './schedules.ts';
import type { TemplatePlan } from './template.ts';
import type { Period } from './windows.ts';

/**
 * A checked rule as data. Unlike functions, data can be stored and sent to another thread. `build-rule.ts` compiles it.
 */
export interface RulePlan
  extends Omit<CompiledRule, 'rank' | 'perTool' | 'perCall' | 'plainMatch' | 'reason' | 'obligations' | 'approval'> {
  readonly reason: TemplatePlan | null;
  readonly obligations: readonly ObligationPlan[];
  readonly approval: ApprovalPlan | null;
}

/** A whole number, or one that a fact chooses. */
export type CountPlan =
  | { readonly kind: 'fixed'; readonly count: number | null }
  | { readonly kind: 'value'; readonly table: ValueTable };

export type AmountPlan = CountPlan | { readonly kind: 'fact'; readonly fact: FactPath };

export interface BucketingPlan {
  readonly facts: readonly FactPath[];
  readonly sharing: 'own' | 'shared';
}

export interface BudgetPlan {
  /** Full id, `set/budget`. */
  readonly id: string;
  readonly unit: string;
  readonly by: BucketingPlan;
  readonly window:
    | { readonly kind: 'rolling'; readonly ms: number }
    | { readonly kind: 'calendar'; readonly per: Period; readonly zone: string };
  readonly limit: CountPlan;
  readonly warnAt: number | null;
}

export type ObligationPlan =
  | { readonly kind: 'budget'; readonly budget: string; readonly amount: AmountPlan; readonly orAsk?: ApprovalPlan }
  | {
      readonly kind: 'rate_limit';
      readonly id: string;
      readonly by: BucketingPlan;
      readonly windowMs: number;
      readonly limit: CountPlan;
      readonly orAsk?: ApprovalPlan;
    }
  | { readonly kind: 'claim'; readonly on: TemplatePlan; readonly hold: 'call' | 'existing' }
  | { readonly kind: 'reserve'; readonly pool: TemplatePlan; readonly units: CountPlan };

export type ApprovalPlan = Omit<CompiledApproval, 'summary' | 'hours'> & {
  readonly summary: TemplatePlan | null;
  readonly hours?: SchedulePlan;
};
