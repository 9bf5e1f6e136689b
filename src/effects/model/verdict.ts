import type { Decision, Reason } from './decision.ts';

/** A rule that matched a call. `unknown` lists the leaves (paths) whose value could not be judged. */
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

/** What a permitted call must satisfy in the one atomic admission. `rule` is the full id of the rule that asks. */
export type Obligation =
  | {
      readonly kind: 'budget';
      readonly rule: string;
      /** Stable id, `set/budget`. */
      readonly budget: string;
      readonly unit: string;
      /** The row within the budget: the values of `by`, encoded injectively. */
      readonly bucket: string;
      /** `own` where `by` holds the agent's id; figures of `shared` budgets are shown to agents as a level only. */
      readonly sharing: 'own' | 'shared';
      readonly window: BudgetWindow;
      readonly limit: number;
      /** Percent of use from which its level is `low`, where policy says so. */
      readonly warnAt?: number;
      /** Units to hold; `null` when the amount is absent, negative, fractional or out of range (`amount_invalid`). */
      readonly amount: number | null;
    }
  | {
      readonly kind: 'rate_limit';
      readonly rule: string;
      readonly id: string;
      readonly bucket: string;
      readonly windowMs: number;
      readonly limit: number;
    }
  | { readonly kind: 'claim'; readonly rule: string; readonly target: string; readonly hold: 'call' | 'existing' }
  | {
      readonly kind: 'reserve';
      readonly rule: string;
      readonly pool: string;
      readonly units: number;
      readonly capacity: number;
    };

/** Who has to agree before the call may run. */
export interface ApprovalRequirement {
  readonly rule: string;
  /** Digest of when the rule asks and whom: what it compares with included. */
  readonly ruleDigest: string;
  readonly approvers: { readonly roles: readonly string[]; readonly users: readonly string[] };
  readonly quorum: number;
  readonly expiresMs: number;
  /** What will happen, in plain words: interpolated, capped, control characters removed. */
  readonly summary: string;
  /** At rest the summary stands here, sealed. */
  readonly sealedSummary?: string;
  /** Which budgets a waiting effect holds: the agent's own, or all. */
  readonly hold: 'own' | 'all';
}

/** What policy would have said where it does not enforce. */
export interface Observed {
  /** `invalid_request`: the params do not fit the tool, and the call would not have been accepted. */
  readonly would: Decision | 'invalid_request';
  readonly rule: string | null;
}

/** How a verdict came about; stands in ledger and receipt. */
export interface VerdictTrace {
  /** Digest of the active policy set. */
  readonly policyVersion: string;
  readonly matched: readonly MatchedRule[];
  /** Shadow rules that would have refused. */
  readonly shadow: readonly string[];
  readonly observed: Observed | null;
}

/** A call that policy refuses. Refusals by permission and identity come before policy and have an empty trace. */
export interface Deny {
  readonly kind: 'deny';
  readonly decision: 'denied_permission' | 'denied_identity' | 'denied_policy' | 'denied_paused';
  readonly reason: Reason;
  readonly trace: VerdictTrace;
}

/** A call that may run if its obligations hold and its approvals are given. */
export interface Permit {
  readonly kind: 'permit';
  /** `observe`: obligations are judged and recorded, and do not refuse. */
  readonly mode: 'enforce' | 'observe';
  readonly obligations: readonly Obligation[];
  readonly approvals: readonly ApprovalRequirement[];
  readonly trace: VerdictTrace;
}

/** What policy says. */
export type Verdict = Permit | Deny;

/** Id of a budget row's window. */
export function windowId(window: Extract<Obligation, { kind: 'budget' }>['window']): string {
  return window.kind === 'rolling' ? `r:${window.ms}` : `c:${window.start}:${window.end}`;
}
