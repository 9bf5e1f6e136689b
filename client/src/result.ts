import type { Json } from './json.ts';
import type * as wire from './wire-records.ts';

/** What the answer of a decision says; the decision is its `status`. `Own`: what the result says in its own way. */
type ResultOf<Answer, Status, Own extends string = never> = Omit<Answer, 'decision' | Own> & {
  readonly status: Status;
};

/** It happened, and this call did it. */
export interface Committed extends ResultOf<wire.Committed, 'committed', 'result' | 'accepted' | 'responseTruncated'> {
  readonly result: Json;
  /** The upstream has accepted the action and will finish it later. */
  readonly accepted: boolean;
  /** The upstream's answer was cut; the action still happened. */
  readonly responseTruncated: boolean;
}

/** It happened earlier under this key; nothing ran again. `result` is absent if it has expired, or is not to be seen. */
export interface DuplicateBlocked extends ResultOf<wire.DuplicateBlocked, 'duplicate_blocked', 'resultExpired'> {
  readonly resultExpired: boolean;
}

/** Not yet: a person decides. `svc.wait` waits for it. */
export type AwaitingApproval = ResultOf<wire.AwaitingApproval, 'pending_approval'>;

/** It is running now under this key. `svc.wait` waits for it. */
export type InProgress = ResultOf<wire.InProgress, 'in_progress'>;

/** It was refused, and did not happen. */
export type Denied = ResultOf<
  wire.DeniedPaused,
  'denied_permission' | 'denied_policy' | 'denied_identity' | 'denied_reservation' | 'denied_paused',
  'mismatches'
>;

/** A budget or a rate limit refuses it; it did not happen. */
export interface DeniedBudget extends ResultOf<wire.DeniedBudget, 'denied_budget', 'budgets'> {
  readonly budgets: readonly wire.Budget[];
}

/**
 * A claim is in the way, or the live state changed and the call asked to be blocked in that case; it did not happen.
 */
export interface DeniedClaim extends ResultOf<wire.DeniedClaim, 'denied_claim', 'mismatches'> {
  readonly mismatches: readonly wire.Mismatch[];
}

/** The live state is not what the agent assumed: plan again. It did not happen. */
export interface ReplanRequired extends ResultOf<wire.DeniedClaim, 'replan_required', 'mismatches'> {
  readonly mismatches: readonly wire.Mismatch[];
}

/** The key belongs to another action; this one did not happen. */
export type IdempotencyConflict = ResultOf<wire.IdempotencyConflict, 'idempotency_conflict'>;

/** The tool failed and nothing changed. The same key may be used again. */
export type Failed = ResultOf<wire.Failed, 'failed'>;

/** Nobody knows whether it happened. Settle it with `svc.resolve`, or look at the upstream. */
export type UnknownEffect = ResultOf<wire.UnknownEffect, 'unknown_effect'>;

/** The result of a call: a closed union on `status`. */
export type CallResult =
  | Committed
  | DuplicateBlocked
  | AwaitingApproval
  | InProgress
  | Denied
  | DeniedBudget
  | DeniedClaim
  | ReplanRequired
  | IdempotencyConflict
  | Failed
  | UnknownEffect;
