import type { Mismatch } from './action-call.ts';
import type { ApprovalRecord } from './approval.ts';
import type { BudgetRow } from './budget.ts';
import type { DeniedDecision, NextStep, Reason } from './decision.ts';
import type { KeptResult, SignedReceipt } from './effect.ts';
import type { Problem } from './run-request.ts';
import type { Observed } from './verdict.ts';
import type { UpstreamAnswer } from '../upstream.ts';

/** A budget as an answer shows it; agents see only a level of a budget that they share with others. */
export interface ShownBudget {
  readonly row: BudgetRow;
  readonly sharing: 'own' | 'shared';
  /** Percent of use from which its level is `low`. */
  readonly warnAt: number;
}

interface OutcomeBase {
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
  /** The effect was there before this request. */
  readonly repeat: boolean;
  readonly retryAfterMs: number | null;
  /** Overrides the `next` of the decision table (drift: `on_mismatch`). */
  readonly next: NextStep | null;
}

/** What became of a run request, as data. `settlement: pending`: true, durable here, not in the store yet. */
export type RunOutcome = OutcomeBase &
  (
    | {
        readonly decision: 'committed';
        readonly receipt: SignedReceipt;
        readonly result: KeptResult | null;
        /** The upstream's whole answer, for the proxy; `null` on a committed effect that another request ran. */
        readonly answer: UpstreamAnswer | null;
        readonly accepted: boolean;
        readonly responseTruncated: boolean;
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
      }
    | { readonly decision: 'unknown_effect'; readonly safeToRetry: boolean; readonly settlement: 'done' | 'pending' }
    | { readonly decision: 'idempotency_conflict' }
    | { readonly decision: DeniedDecision; readonly mismatches: readonly Mismatch[] }
  );

/** What `runEffect` gives a front door. */
export type RunResult =
  | { readonly kind: 'outcome'; readonly outcome: RunOutcome }
  | { readonly kind: 'problem'; readonly problem: Problem };
