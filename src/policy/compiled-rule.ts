import type { Position } from '../diagnostics/finding.ts';
import type { Json } from '../json/value.ts';
import type { ApprovalRequirement, BudgetWindow, MatchedRule } from '../effects/model/verdict.ts';
import type { Test } from './compiled-condition.ts';
import type { EngineCondition, Symbols } from './engine-form.ts';
import type { ReadFact } from './fact-path.ts';
import type { PolicyInput } from './input.ts';
import type { TimeIn } from './schedules.ts';
import type { Template } from './template.ts';
import type { WindowAt } from './windows.ts';

export interface CompiledRule {
  /** Full id, `set/rule`. */
  readonly id: string;
  readonly set: string;
  readonly effect: MatchedRule['effect'];
  readonly description: string | null;
  readonly mode: 'enforce' | 'shadow';
  readonly position: Position;
  readonly priority: number;
  /** Place in the order of report. */
  readonly rank: number;
  /** Whether the rule matches where it cannot be judged. True for restrictive rules without `on_unknown: skip`. */
  readonly unknownIs: boolean;
  /** Inclusive and exclusive bounds, ms; infinite where the rule has none. */
  readonly from: number;
  readonly until: number;
  /** Match, `when` and `unless` in the engine's rule format. */
  readonly conditions: Extract<EngineCondition, { all: unknown }>;
  readonly symbols: Symbols;
  /** The part of the condition that depends only on the tool, and the rest. */
  readonly perTool: Test;
  readonly perCall: Test;
  readonly reason: Template | null;
  readonly obligations: readonly CompiledObligation[];
  /** Params that are masked where people see them. */
  readonly redact: readonly string[];
  readonly approval: CompiledApproval | null;
  /** The entry in the trace when nothing was unknown. One object serves all decisions. */
  readonly plainMatch: MatchedRule;
}

/** A whole number, fixed or from a named value. `null`: this call has none. */
export type CountOf = (input: PolicyInput) => number | null;

/** The facts of `by`, in order. */
export interface Bucketing {
  readonly facts: readonly { readonly text: string; readonly read: ReadFact }[];
  readonly sharing: 'own' | 'shared';
}

export interface CompiledBudget {
  /** Full id, `set/budget`. */
  readonly id: string;
  readonly unit: string;
  readonly by: Bucketing;
  /** A window of the calendar is another one at another time. */
  readonly window: BudgetWindow | WindowAt;
  /** Percent of use at which the level becomes `low`; `null` means the default. */
  readonly warnAt: number | null;
  readonly limit: CountOf;
  /** The limit where it is the same for every call; else `null`. */
  readonly fixedLimit: number | null;
}

export type CompiledObligation =
  | {
      readonly kind: 'budget';
      readonly budget: CompiledBudget;
      readonly amount: (input: PolicyInput) => Json | undefined;
      /** Path of the fact that the amount is; `null` where it is none. */
      readonly amountFrom: string | null;
      /** Whom it asks beyond the limit. Absent: nobody; the call is refused. */
      readonly orAsk?: CompiledApproval;
    }
  | {
      readonly kind: 'rate_limit';
      readonly id: string;
      readonly by: Bucketing;
      readonly windowMs: number;
      readonly limit: CountOf;
      readonly orAsk?: CompiledApproval;
    }
  | { readonly kind: 'claim'; readonly on: Template; readonly hold: 'call' | 'existing' }
  | {
      readonly kind: 'reserve';
      readonly pool: Template;
      readonly units: CountOf;
      readonly pools: ReadonlyMap<string, number>;
    };

export interface CompiledApproval
  extends Omit<ApprovalRequirement, 'rule' | 'summary' | 'sealedSummary' | 'hours' | 'beyond'> {
  /** `null`: the summary is the call with its params. */
  readonly summary: Template | null;
  /** Absent: all time counts. */
  readonly hours?: { readonly name: string; readonly timeIn: TimeIn };
}
