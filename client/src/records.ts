import type { Json, JsonObject } from './json.ts';
import type { Budget, Decision, Mismatch, PendingApproval, Reason } from './result.ts';

/** One action for the gateway to run. */
export interface CallInput {
  /** Canonical name, `<upstream>.<tool>`. */
  readonly tool: string;
  readonly params?: JsonObject;
  /** Who acts. Needed with an account key; an agent key already names its agent. */
  readonly agentId?: string;
  /**
   * Calls with the same key are the same action. If absent, the client makes one per call and keeps it over retries.
   */
  readonly idempotencyKey?: string;
  readonly target?: string;
  readonly actionType?: string;
  /** What the agent assumes about the live state. The gateway compares both right before it sends. */
  readonly stateCheck?: StateCheck;
  readonly claimId?: string;
  readonly reservationId?: string;
  /** Stored and returned, never evaluated; 4 KiB at most. */
  readonly metadata?: JsonObject;
}

export interface CallOptions {
  /**
   * Wait for a person, or for a running call with the same key: `true` for as long as it takes, a number for at most
   * this many ms.
   */
  readonly wait?: boolean | number;
  readonly signal?: AbortSignal;
}

export interface StateCheck {
  readonly intent: string;
  readonly requiredFields: readonly string[];
  readonly assumedState: JsonObject;
  readonly conditions: JsonObject;
  readonly onMismatch: 'replan' | 'block';
}

export type StateVerification = StateCheck & { readonly currentState: JsonObject };

export interface StateVerdict {
  readonly status: 'verified' | 'mismatch_detected';
  readonly decision: 'proceed' | 'replan' | 'block';
  readonly mismatches: readonly Mismatch[];
}

export interface Reconciliation {
  readonly action: { readonly intent: string; readonly tool: string; readonly params: JsonObject };
  /** `UNKNOWN`, which is also the default: nothing else can be reconciled. */
  readonly outcome?: 'UNKNOWN';
  readonly currentState: JsonObject;
  readonly conditions: JsonObject;
}

export interface ReconcileVerdict {
  readonly decision: 'do_not_retry' | 'retry_allowed' | 'replan';
  readonly reason: string;
  readonly status: 'reconciled';
}

export type EffectState = 'pending_approval' | 'executing' | 'committed' | 'failed' | 'unknown' | 'rejected' | 'denied';

/** The record of an action. `toResult(effect)` gives its result, and so does `wait`. */
export interface Effect {
  readonly effectId: string;
  readonly state: EffectState;
  readonly decision: Decision;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  readonly didItHappen?: 'yes' | 'no' | 'maybe';
  readonly fingerprint: string;
  readonly createdAt: string;
  readonly settledAt?: string | null;
  readonly receiptId?: string | null;
  readonly result?: Json;
  readonly approval?: PendingApproval;
  readonly safeToRetry?: boolean;
  readonly mismatches?: readonly Mismatch[];
  readonly budgets?: readonly Budget[];
  /** While policy only observes: the decision it would have made. */
  readonly observed?: { readonly would: string; readonly rule: string | null };
  readonly metadata?: JsonObject | null;
  /** With `get`, and with lists that ask for them. Params that policy redacts are masked. */
  readonly params?: JsonObject;
  readonly paramsTruncated?: boolean;
  /** Why there are no params. */
  readonly paramsOmitted?: string;
}

/** One event of the append-only ledger. */
export interface LedgerEvent {
  readonly seq: number;
  readonly id: string;
  readonly at: string;
  readonly kind: string;
  readonly effectId: string | null;
  readonly actor: { readonly type: string; readonly id: string };
  readonly data: JsonObject;
}

export interface EffectWithLedger {
  readonly effect: Effect;
  readonly ledger: readonly LedgerEvent[];
}

export interface EffectFilter {
  readonly state?: EffectState;
  readonly decision?: Decision;
  readonly tool?: string;
  readonly agentId?: string;
  /** RFC 3339, inclusive. */
  readonly since?: string;
  /** RFC 3339, exclusive. */
  readonly until?: string;
  /** With the params of each call. */
  readonly params?: true;
  readonly limit?: number;
  readonly cursor?: string;
}

/** A page of a list; pass `nextCursor` as `cursor` for the next one. */
export interface EffectPage {
  readonly effects: readonly Effect[];
  readonly nextCursor: string | null;
}

/** One step of a run, and how long it took. */
export interface Stage {
  readonly stage: string;
  readonly status: 'passed' | 'refused' | 'failed' | 'unknown' | 'waiting' | 'skipped';
  readonly startedAt: string;
  readonly durationMs: number | null;
  readonly detail: string | null;
}

/** What the result of a call would be now. */
export interface Preview {
  readonly would: Decision;
  readonly httpStatus: number;
  readonly reason: Reason;
  readonly obligations: readonly JsonObject[];
  readonly policies: readonly JsonObject[];
  readonly budgets: readonly Budget[];
  readonly policyVersion?: string;
  /** Policy only observes: what it would have decided. */
  readonly observed?: { readonly would: string; readonly rule: string | null };
}

export interface ResolveInput {
  readonly outcome: 'happened' | 'not_happened';
  readonly evidence?: Json;
  readonly comment?: string;
  /** Settle before the quiet time is over. Needs a second user; the receipt says so. */
  readonly force?: boolean;
}

/** A request for a person's decision. */
export interface Approval {
  readonly id: string;
  readonly status: 'pending' | 'granted' | 'rejected' | 'expired' | 'used';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly createdAt: string;
  readonly expiresAt: string;
  readonly [more: string]: Json;
}

/** A page of requests, newest first. It may be short even if others follow: `nextCursor` says so. */
export interface ApprovalPage {
  readonly approvals: readonly Approval[];
  readonly nextCursor: string | null;
}

/** What a vote did to the call. */
export interface Became {
  readonly what: 'waiting' | 'rejected' | 'dispatched' | 'stopped' | 'asked_anew' | 'ended';
  /** For people. */
  readonly message: string;
  /** `dispatched`, `stopped`: the decision on the call. */
  readonly decision?: Decision;
  readonly code?: string;
  readonly rule?: string;
  readonly effectId?: string;
  readonly receiptId?: string;
  /** `asked_anew`: the request that people are asked now. */
  readonly approvalId?: string;
}

/** The answer to a vote: the request as it is now, and what happened to the call. */
export interface Voted {
  readonly id: string;
  readonly status: Approval['status'];
  readonly effect: { readonly effectId: string; readonly state: EffectState; readonly decision: Decision };
  /** The same person had approved before: this vote changed nothing. */
  readonly votedAlready: boolean;
  readonly became: Became;
}

/** An exclusive right of an agent to act on a target, for a limited time. */
export interface Claim {
  readonly id: string;
  readonly target: string;
  readonly agentId: string;
  readonly createdAt: string;
  readonly expiresAt: string;
}

/** Units of a pool that are set aside for an agent, for a limited time. */
export interface Reservation {
  readonly id: string;
  readonly pool: string;
  readonly agentId: string;
  readonly units: number;
  readonly createdAt: string;
  readonly expiresAt: string;
}

export type PauseScope =
  | { readonly workspace: true }
  | { readonly tool: string }
  | { readonly agent: string }
  | { readonly upstream: string }
  | { readonly key: string };

/** A stop switch. */
export interface Pause {
  readonly id: string;
  readonly scope: PauseScope;
  readonly reason: string;
  readonly createdAt: string;
  readonly until: string | null;
  /** Only when it was just set: nothing known has the name that it stops. */
  readonly warning?: string;
}

/** Filters for the list of keys. A key must fit all that are given. */
export interface KeyFilter {
  readonly kind?: ApiKey['kind'];
  readonly workspace?: string;
  readonly agentId?: string;
  readonly userId?: string;
}

/** An API key without its secret. */
/** Which policies were in force. */
export interface PolicyHistory {
  readonly inForce: string | null;
  /** Of the files of the gateway that answered; `null` where they cannot be used. */
  readonly filesVersion: string | null;
  /** Newest first. */
  readonly activations: readonly {
    readonly version: string;
    readonly at: string;
    readonly by: { readonly type: 'agent' | 'user' | 'key' | 'gateway'; readonly id: string };
    /** `files`: a gateway found them in its files. */
    readonly how: 'files' | 'activate' | 'rollback';
  }[];
}

export interface ApiKey {
  readonly id: string;
  readonly name: string;
  readonly kind: 'account' | 'agent' | 'administrative' | 'profile';
  readonly profile: string | null;
  readonly workspace: string | null;
  readonly agentId: string | null;
  readonly userId: string | null;
  readonly scopes: readonly string[];
  readonly allowedTools: readonly string[] | null;
  readonly readOnly: boolean;
  readonly madeBy: string | null;
  readonly createdAt: string;
  readonly expiresAt: string | null;
  readonly lastUsedAt: string | null;
  readonly revokedAt: string | null;
  readonly replacedBy: string | null;
}

/** Proxied reads of one second, one agent and one tool that passed. */
export interface PassedRead {
  /** Of the ledger: newer sums have larger ones. */
  readonly seq: number;
  readonly firstAt: string;
  readonly lastAt: string;
  readonly count: number;
  readonly agentId: string;
  /** `null`: no tool declares it. */
  readonly tool: string | null;
  readonly upstream: string;
  /** How many of them were answered with each status; `none` without an answer. */
  readonly statuses: Readonly<Record<string, number>>;
  /** What policy would have said, where it only observes and would have stopped them. */
  readonly observed: { readonly would: string; readonly rule: string | null } | null;
  /** Method and path of one of those that policy would have stopped. */
  readonly example: string | null;
}

/** Those that policy would have stopped if it were enforced. */
export interface ObservedRead extends PassedRead {
  readonly observed: { readonly would: string; readonly rule: string | null };
  readonly example: string;
}

export interface PassedReadPage {
  readonly reads: readonly PassedRead[];
  readonly nextCursor: string | null;
}

export interface ObservedReadPage {
  readonly reads: readonly ObservedRead[];
  readonly nextCursor: string | null;
}
