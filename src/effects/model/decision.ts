import type { Code } from './codes.ts';

/** The 14 decisions, spelt as on the wire (interface specification, section 7). */
export const DECISIONS = [
  'committed',
  'duplicate_blocked',
  'pending_approval',
  'in_progress',
  'denied_permission',
  'denied_policy',
  'denied_identity',
  'denied_budget',
  'denied_claim',
  'idempotency_conflict',
  'denied_reservation',
  'denied_paused',
  'failed',
  'unknown_effect',
] as const;

export type Decision = (typeof DECISIONS)[number];

/** The decisions that refuse a call before anything is sent. */
export type DeniedDecision = Extract<Decision, `denied_${string}`>;

/** Whether something was denied, for whatever reason: a `switch` then names the decisions that are left. */
export function isDenied<Decided extends { readonly decision: Decision }>(
  decided: Decided,
): decided is Extract<Decided, { readonly decision: DeniedDecision }> {
  return decided.decision.startsWith('denied_');
}

/** What the caller should do now. */
export type NextStep = 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';

/**
 * Section 7 as a table: the status of each decision, whether the action happened, and what to do next. `unknown_effect`
 * is 504 for the call that lost its answer, and 409 for a repeat of it (see {@link statusOf}).
 */
export const DECISION_TABLE: Readonly<
  Record<Decision, { readonly status: number; readonly happened: 'yes' | 'no' | 'maybe'; readonly next: NextStep }>
> = {
  committed: { status: 200, happened: 'yes', next: 'proceed' },
  duplicate_blocked: { status: 409, happened: 'yes', next: 'proceed' },
  pending_approval: { status: 202, happened: 'no', next: 'wait' },
  in_progress: { status: 409, happened: 'maybe', next: 'wait' },
  denied_permission: { status: 403, happened: 'no', next: 'block' },
  denied_policy: { status: 403, happened: 'no', next: 'block' },
  denied_identity: { status: 403, happened: 'no', next: 'block' },
  denied_budget: { status: 402, happened: 'no', next: 'block' },
  denied_claim: { status: 409, happened: 'no', next: 'wait' },
  idempotency_conflict: { status: 409, happened: 'no', next: 'block' },
  denied_reservation: { status: 423, happened: 'no', next: 'wait' },
  denied_paused: { status: 423, happened: 'no', next: 'wait' },
  failed: { status: 502, happened: 'no', next: 'retry' },
  unknown_effect: { status: 504, happened: 'maybe', next: 'resolve' },
};

/** Reasons with another next step than their decision: the caller can get what is missing, or wait for the limit. */
const NEXT_OF_REASON: Readonly<Partial<Record<Code, NextStep>>> = {
  claim_required: 'replan',
  reservation_invalid: 'replan',
  rate_limited: 'wait',
  too_many_pending: 'wait',
};

/** What the caller should do after a decision with this reason. */
export function nextOf(decision: Decision, code: Code): NextStep {
  return NEXT_OF_REASON[code] ?? DECISION_TABLE[decision].next;
}

/** HTTP status of a decision. @param repeat whether the effect existed before this request */
export function statusOf(decision: Decision, repeat: boolean): number {
  return decision === 'unknown_effect' && repeat ? 409 : DECISION_TABLE[decision].status;
}

/** Why a decision was made. `code` is stable and has a page in `docs/errors/`. */
export interface Reason {
  readonly code: Code;
  readonly message: string;
  /** Full id of the policy set that decided; absent where none did. */
  readonly policy?: string;
  /** Full id of the rule that decided (`set/rule`); absent where none did. */
  readonly rule?: string;
  /**
   * What to do next, where the caller chose it (`on_mismatch`). It is not part of the shown reason; it becomes `next`
   * of the answer.
   */
  readonly next?: NextStep;
}
