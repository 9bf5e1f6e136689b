import type { Code } from './codes.ts';

/** The 14 decisions, in the spelling of the wire (interface specification, section 7). */
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

export type DidItHappen = 'yes' | 'no' | 'maybe';

/** What the caller should do now. */
export type NextStep = 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';

interface DecisionRow {
  readonly status: number;
  readonly happened: DidItHappen;
  readonly next: NextStep;
}

/**
 * Section 7 as one table: the status of each decision, whether the action happened, and what comes next.
 * `unknown_effect` is 504 for the call that lost its answer; a repeat of it is 409 (see {@link statusOf}).
 */
export const DECISION_TABLE: Readonly<Record<Decision, DecisionRow>> = {
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

/** Reasons that leave another step than most of their decision do: what is missing can be got, what is used up comes back. */
const NEXT_OF_REASON: Readonly<Partial<Record<Code, NextStep>>> = {
  claim_required: 'replan',
  reservation_invalid: 'replan',
  rate_limited: 'wait',
  too_many_pending: 'wait',
};

/** What the caller should do after a decision that came out so for a reason. */
export function nextOf(decision: Decision, code: Code): NextStep {
  return NEXT_OF_REASON[code] ?? DECISION_TABLE[decision].next;
}

/**
 * HTTP status of a decision.
 * @param repeat whether this request found the effect already there instead of making the attempt
 */
export function statusOf(decision: Decision, repeat: boolean): number {
  return decision === 'unknown_effect' && repeat ? 409 : DECISION_TABLE[decision].status;
}

/** Why a decision came out as it did. `code` is stable and has a page in `docs/errors/`. */
export interface Reason {
  readonly code: Code;
  readonly message: string;
  /** Full id of the policy set that decided, where one did. */
  readonly policy?: string;
  /** Full id of the rule that decided (`set/rule`), where one did. */
  readonly rule?: string;
  /** What to do next, where the caller said it (`on_mismatch`). Not shown with the reason, but as the answer's `next`. */
  readonly next?: NextStep;
}
