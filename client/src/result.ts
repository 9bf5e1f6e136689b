import type { Json, JsonObject } from './json.ts';

/** The 14 decisions of the gateway. */
export type Decision =
  | 'committed'
  | 'duplicate_blocked'
  | 'pending_approval'
  | 'in_progress'
  | 'denied_permission'
  | 'denied_policy'
  | 'denied_identity'
  | 'denied_budget'
  | 'denied_claim'
  | 'idempotency_conflict'
  | 'denied_reservation'
  | 'denied_paused'
  | 'failed'
  | 'unknown_effect';

/** Why the decision was made. `code` is stable and has a page in the gateway's documentation. */
export interface Reason {
  readonly code: string;
  readonly message: string;
  readonly policy?: string;
  readonly rule?: string;
}

/** A field whose live value is not the assumed one. A missing value is `null`. */
export interface Mismatch {
  readonly field: string;
  readonly assumed: Json;
  readonly current: Json;
  /** A value is too long to be shown: it is replaced by its beginning as a text, or by null. */
  readonly truncated?: true;
}

/** A budget as the agent may see it: numbers and a level for its own budgets, only the level for shared ones. */
export type Budget =
  | {
      readonly budget: string;
      readonly unit: string;
      readonly limit: number;
      readonly spent: number;
      readonly held: number;
      readonly remaining: number;
      /** `low` when the use reaches `warn_at` percent, from the policy. */
      readonly level: 'ok' | 'low' | 'exhausted';
      /** RFC 3339; `null` for rolling windows. */
      readonly resetsAt: string | null;
    }
  | {
      readonly budget: string;
      readonly unit: string;
      readonly level: 'ok' | 'low' | 'exhausted';
      readonly resetsAt: string | null;
    };

/** A request for approval, as a waiting call shows it. */
export interface PendingApproval {
  readonly id: string;
  readonly status: string;
  /** RFC 3339. Expiry is never approval. */
  readonly expiresAt: string;
  readonly quorum: number;
  readonly approvals: number;
  /** The page on which people decide. By itself the address shows nothing. */
  readonly url?: string;
}

/** The signed receipt: its payload with the exact spelling that was signed, and the signature (`jws`). */
export interface Receipt {
  readonly [name: string]: Json;
  readonly id: string;
  readonly jws: string;
}

/** What all results have. */
interface Answer {
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  readonly didItHappen: 'yes' | 'no' | 'maybe';
  /** Whether the same call with the same key may be sent again now. */
  readonly safeToRetry: boolean;
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  /** Policy only observes: what it would have decided. */
  readonly observed?: { readonly would: string; readonly rule: string | null };
  readonly budgets?: readonly Budget[];
  /** How long to wait before asking again, in ms. */
  readonly retryAfterMs?: number;
  readonly links?: JsonObject;
}

/** It happened, and this call did it. */
export interface Committed extends Answer {
  readonly status: 'committed';
  readonly receipt: Receipt;
  readonly result: Json;
  readonly upstreamStatus?: number;
  /** The upstream has accepted the action and will finish it later. */
  readonly accepted: boolean;
  /** The upstream's answer was cut; the action still happened. */
  readonly responseTruncated: boolean;
  /** `pending`: it happened, but the gateway's store will only know it once it can be reached again. */
  readonly settlement?: 'pending';
}

/** It happened earlier under this key; nothing ran again. */
export interface DuplicateBlocked extends Answer {
  readonly status: 'duplicate_blocked';
  readonly receipt: Receipt;
  /** Absent if it has expired, or the caller may no longer call the tool. */
  readonly result?: Json;
  readonly resultExpired: boolean;
}

/** Not yet: a person decides. `svc.wait` waits for it. */
export interface AwaitingApproval extends Answer {
  readonly status: 'pending_approval';
  readonly approval: PendingApproval;
}

/** It is running now under this key. `svc.wait` waits for it. */
export interface InProgress extends Answer {
  readonly status: 'in_progress';
}

/** It was refused, and did not happen. */
export interface Denied extends Answer {
  readonly status: 'denied_permission' | 'denied_policy' | 'denied_identity' | 'denied_reservation' | 'denied_paused';
}

/** A budget or a rate limit refuses it; it did not happen. */
export interface DeniedBudget extends Answer {
  readonly status: 'denied_budget';
  readonly budgets: readonly Budget[];
}

/**
 * A claim is in the way, or the live state changed and the call asked to be blocked in that case; it did not happen.
 */
export interface DeniedClaim extends Answer {
  readonly status: 'denied_claim';
  readonly mismatches: readonly Mismatch[];
}

/** The live state is not what the agent assumed: plan again. It did not happen. */
export interface ReplanRequired extends Answer {
  readonly status: 'replan_required';
  readonly mismatches: readonly Mismatch[];
}

/** The key belongs to another action; this one did not happen. */
export interface IdempotencyConflict extends Answer {
  readonly status: 'idempotency_conflict';
}

/** The tool failed and nothing changed. The same key may be used again. */
export interface Failed extends Answer {
  readonly status: 'failed';
  /** The upstream's answer, if there was one. */
  readonly result?: Json;
  readonly upstreamStatus?: number;
}

/** Nobody knows whether it happened. Settle it with `svc.resolve`, or look at the upstream. */
export interface UnknownEffect extends Answer {
  readonly status: 'unknown_effect';
}

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
