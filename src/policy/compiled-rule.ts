import type { Position } from '../diagnostics/finding.ts';
import type { Json } from '../json/value.ts';
import type { ApprovalRequirement, MatchedRule } from '../effects/model/verdict.ts';
import type { Test } from './compiled-condition.ts';
import type { EngineCondition } from './engine-form.ts';
import type { ReadFact } from './fact-path.ts';
import type { PolicyInput } from './input.ts';
import type { Template } from './template.ts';
import type { WindowAt } from './windows.ts';

/** A rule ready to be judged. */
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
  /** Whether the rule matches where it cannot be judged: restrictive rules, unless they say `on_unknown: skip`. */
  readonly unknownIs: boolean;
  /** Inclusive and exclusive bounds, ms; infinite where the rule has none. */
  readonly from: number;
  readonly until: number;
  /** Match, `when` and `unless` in the engine's rule format. */
  readonly conditions: Extract<EngineCondition, { all: unknown }>;
  /** The part of the condition that depends on the tool alone, and the rest. */
  readonly perTool: Test;
  readonly perCall: Test;
  readonly reason: Template | null;
  readonly obligations: readonly CompiledObligation[];
  /** Params that are masked where people are shown them. */
  readonly redact: readonly string[];
  readonly approval: CompiledApproval | null;
  /** What the trace holds where nothing was unknown: one object for all decisions. */
  readonly plainMatch: MatchedRule;
}

/** A whole number: fixed, or of a named value. `null`: there is none for this call. */
export type CountOf = (input: PolicyInput) => number | null;

/** Values of `by`, in order. */
export interface Bucketing {
  readonly facts: readonly { readonly text: string; readonly read: ReadFact }[];
  readonly sharing: 'own' | 'shared';
}

export interface CompiledBudget {
  /** Full id, `set/budget`. */
  readonly id: string;
  readonly unit: string;
  readonly by: Bucketing;
  readonly windowAt: WindowAt;
  /** Percent of use from which its level is `low`; `null`: as for budgets that do not say. */
  readonly warnAt: number | null;
  readonly limit: CountOf;
}

export type CompiledObligation =
  | {
      readonly kind: 'budget';
      readonly budget: CompiledBudget;
      readonly amount: (input: PolicyInput) => Json | undefined;
    }
  | {
      readonly kind: 'rate_limit';
      readonly id: string;
      readonly by: Bucketing;
      readonly windowMs: number;
      readonly limit: CountOf;
    }
  | { readonly kind: 'claim'; readonly on: Template; readonly hold: 'call' | 'existing' }
  | {
      readonly kind: 'reserve';
      readonly pool: Template;
      readonly units: CountOf;
      readonly pools: ReadonlyMap<string, number>;
    };

export interface CompiledApproval {
  /** Digest of the rule that asks: its conditions with all that they compare with, its bounds, and whom it asks. */
  readonly ruleDigest: string;
  readonly approvers: ApprovalRequirement['approvers'];
  readonly quorum: number;
  readonly expiresMs: number;
  /** `null`: what the call is, with its params. */
  readonly summary: Template | null;
  readonly hold: 'own' | 'all';
}
