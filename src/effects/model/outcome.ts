import type { Amounts, KeptResult, UpstreamAnswer } from './answer.ts';
import type { Mismatch } from './action-call.ts';
import type { ApprovalRecord } from './approval.ts';
import type { BudgetRow, SignedReceipt } from './effect.ts';
import type { DeniedDecision, NextStep, Reason } from './decision.ts';
import type { Problem } from './run-request.ts';
import type { ChangedParams, Observed } from './verdict.ts';

/** A budget in an answer. Of a budget that it shares with others, an agent sees only the level. */
export interface ShownBudget {
  readonly row: BudgetRow;
  readonly sharing: 'own' | 'shared';
  /** Percent of use at which the level becomes `low`. */
  readonly warnAt: number;
}

/**
 * The result of a run request, as data. `settlement: pending`: the result is true and durable here, but not yet in the
 * store.
 */
export type RunOutcome = {
  readonly workspace: string;
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  readonly budgets: readonly ShownBudget[];
  readonly observed: Observed | null;
  /** The effect existed before this request. */
  readonly repeat: boolean;
  readonly retryAfterMs: number | null;
  /** Approvers changed what ran. Absent: it is what was asked. */
  readonly changed?: ChangedParams;
  /** Replaces the `next` of the decision table (drift: `on_mismatch`). */
  readonly next: NextStep | null;
} & (
  | {
      readonly decision: 'committed';
      readonly receipt: SignedReceipt;
      readonly result: KeptResult | null;
      /** The upstream's whole answer, for the proxy; `null` if another request ran the effect. */
      readonly answer: UpstreamAnswer | null;
      readonly accepted: boolean;
      readonly responseTruncated: boolean;
      readonly amounts?: Amounts;
      readonly settlement: 'done' | 'pending';
    }
  | {
      readonly decision: 'duplicate_blocked';
      readonly receipt: SignedReceipt;
      readonly result: KeptResult | null;
      readonly resultExpired: boolean;
    }
  | { readonly decision: 'pending_approval'; readonly approval: ApprovalRecord }
  | { readonly decision: 'in_progress' }
  | {
      readonly decision: 'failed';
      readonly answer: UpstreamAnswer | null;
      readonly result: KeptResult | null;
      readonly settlement: 'done' | 'pending';
      /** The upstream was busy, and the same call under the same key would be the next attempt. */
      readonly askAgain?: true;
    }
  | { readonly decision: 'unknown_effect'; readonly safeToRetry: boolean; readonly settlement: 'done' | 'pending' }
  | { readonly decision: 'idempotency_conflict' }
  | { readonly decision: DeniedDecision; readonly mismatches: readonly Mismatch[] }
);

/** What `runEffect` returns to a door. */
export type RunResult =
  | { readonly kind: 'outcome'; readonly outcome: RunOutcome }
  | { readonly kind: 'problem'; readonly problem: Problem };
