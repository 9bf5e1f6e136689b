import type { Decision, Reason } from './decision.ts';
import type { Editable } from './editable.ts';
import type { SeenEntity } from './entity.ts';

/** A rule that matched a call. `unknown`: paths of the conditions whose value could not be judged. */
export interface MatchedRule {
  /** Full id, `set/rule`. */
  readonly rule: string;
  readonly effect: 'allow' | 'constrain' | 'require_approval' | 'deny' | 'pause';
  readonly unknown: readonly string[];
}

/** The window of a budget at one instant. Calendar bounds are ms of the store's clock, end exclusive. */
export type BudgetWindow =
  | { readonly kind: 'calendar'; readonly start: number; readonly end: number }
  | { readonly kind: 'rolling'; readonly ms: number };

/**
 * What a limit does to a call that goes beyond it. `ask`: people may be asked, and so admission names the limit.
 * `asked`: the approvals of the permit ask about it. Absent: it refuses the call.
 */
type Beyond = 'ask' | 'asked';

/** A limit that approvers let one call go beyond. */
export interface BeyondLimit {
  readonly limit: string;
  /** How many units, or attempts, of this call are above the limit. */
  readonly by: number;
}

/**
 * A requirement on a permitted call, which admission checks atomically. `rule` is the full id of the rule that sets it.
 */
export type Obligation =
  | {
      readonly kind: 'budget';
      readonly rule: string;
      /** Stable id, `set/budget`. */
      readonly budget: string;
      readonly unit: string;
      /** The row within the budget: the values of `by`, encoded so that different values never give the same text. */
      readonly bucket: string;
      /** `own` where `by` contains the agent's id. Of a `shared` budget, agents see only a level, no figures. */
      readonly sharing: 'own' | 'shared';
      readonly window: BudgetWindow;
      readonly limit: number;
      /** Percent of use at which the level becomes `low`; absent where policy does not set it. */
      readonly warnAt?: number;
      /** Units to hold; `null` when the amount is missing, negative, fractional or out of range (`amount_invalid`). */
      readonly amount: number | null;
      /** Path of the fact that should have been the amount, such as `params.amount`; only where the amount is `null`. */
      readonly amountFrom?: string;
      readonly beyond?: Beyond;
    }
  | {
      readonly kind: 'rate_limit';
      readonly rule: string;
      readonly id: string;
      readonly bucket: string;
      readonly windowMs: number;
      readonly limit: number;
      readonly beyond?: Beyond;
    }
  | { readonly kind: 'claim'; readonly rule: string; readonly target: string; readonly hold: 'call' | 'existing' }
  | {
      readonly kind: 'reserve';
      readonly rule: string;
      readonly pool: string;
      readonly units: number;
      readonly capacity: number;
    };

/** How far who approves a call may allow the next ones alike. */
export interface AllowAlike {
  /** How many calls at most. */
  readonly times: number;
  readonly forMs: number;
}

export interface Approvers {
  readonly roles: readonly string[];
  readonly users: readonly string[];
}

export interface ApprovalRequirement {
  readonly rule: string;
  /** Digest of when the rule asks and whom, with the values that its conditions compare with. */
  readonly ruleDigest: string;
  readonly approvers: Approvers;
  readonly quorum: number;
  readonly expiresMs: number;
  /** What will happen, in plain words: filled in, limited in length, without control characters. */
  readonly summary: string;
  /** As it is stored: the summary, and all that a vote rests on, sealed. */
  readonly sealedSummary?: string;
  /** Which budgets a waiting effect holds: the agent's own, or all. */
  readonly hold: 'own' | 'all';
  /** Params that who decides by this rule may change. Absent: none. */
  readonly editable?: Editable;
  /** A rejection has to say why. */
  readonly requireReason?: true;
  /** Absent: each call is asked about. */
  readonly allowAlike?: AllowAlike;
  /** Absent: nobody else is asked. */
  /** Who may decide besides, where nobody has after a time. */
  readonly escalate?: {
    readonly afterMs: number;
    readonly to: Approvers;
  };
  /** When so much of the time that counts has passed, ms by the store's clock. Absent: all time counts. */
  readonly hours?: {
    readonly schedule: string;
    readonly expiresAt: number;
    /** `null`: nobody else is asked. */
    readonly escalatesAt: number | null;
  };
  /** The limit that the call would go beyond, as {@link limitName} has it. Absent: the rule itself asks. */
  readonly beyond?: string;
}

/** What policy would have decided, in a mode that does not enforce it. */
export interface Observed {
  /** `invalid_request`: the params do not fit the tool, so the call would not have been accepted. */
  readonly would: Decision | 'invalid_request';
  readonly rule: string | null;
}

/** How a verdict was reached; kept in the ledger and the receipt. */
export interface VerdictTrace {
  /** Digest of the active policy set. */
  readonly policyVersion: string;
  readonly matched: readonly MatchedRule[];
  readonly shadow: readonly string[];
  readonly observed: Observed | null;
  /** Entities of the company brain that policy looked at; absent where it looked at none. */
  readonly entities?: readonly SeenEntity[];
  /** Approvers changed params of what runs. Absent: it runs as it was asked. */
  readonly changed?: ChangedParams;
  /** Limits that approvers let it go beyond. Absent: it is within all. */
  readonly beyond?: readonly BeyondLimit[];
  /** Nobody was asked, because somebody had allowed calls alike. Absent: none was needed. */
  readonly allowance?: AllowanceUse;
}

/** A use of an allowance: which one, given with which request for approval, by whom, and how many-th it is. */
export interface AllowanceUse {
  readonly id: string;
  readonly approvalId: string;
  readonly by: string;
  readonly use: number;
}

/** Which params approvers changed, by name, and in which request for approval. */
export interface ChangedParams {
  readonly approvalId: string;
  readonly params: readonly string[];
}

/** A refusal by policy. Refusals by permission and identity come before policy and have an empty trace. */
export interface Deny {
  readonly kind: 'deny';
  readonly decision: 'denied_permission' | 'denied_identity' | 'denied_policy' | 'denied_paused';
  readonly reason: Reason;
  readonly trace: VerdictTrace;
}

/** Permission for a call to run if its obligations hold and its approvals are given. */
export interface Permit {
  readonly kind: 'permit';
  /** `observe`: obligations are checked and recorded, but do not refuse. */
  readonly mode: 'enforce' | 'observe';
  readonly obligations: readonly Obligation[];
  readonly approvals: readonly ApprovalRequirement[];
  readonly trace: VerdictTrace;
}

export type Verdict = Permit | Deny;

/** Names of limits that a call would go beyond; `null`: none is known. */
export type Exceeded = ReadonlySet<string> | null;

/** Names a limit of a call: the budget, or the rate. A call has one row of each. */
export function limitName(
  of: { readonly kind: 'budget'; readonly budget: string } | { readonly kind: 'rate_limit'; readonly id: string },
): string {
  return of.kind === 'budget' ? `budget:${of.budget}` : `rate:${of.id}`;
}

export function windowId(window: Extract<Obligation, { kind: 'budget' }>['window']): string {
  return window.kind === 'rolling' ? `r:${window.ms}` : `c:${window.start}:${window.end}`;
}
