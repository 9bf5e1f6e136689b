import type { Json, JsonObject } from './json.ts';
import type { ApiKey, Decision, EffectState, PassedRead, PolicyProposal } from './wire-records.ts';

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

export interface Reconciliation {
  readonly action: { readonly intent: string; readonly tool: string; readonly params: JsonObject };
  /** `UNKNOWN`, which is also the default: nothing else can be reconciled. */
  readonly outcome?: 'UNKNOWN';
  readonly currentState: JsonObject;
  readonly conditions: JsonObject;
}

export interface EffectFilter {
  readonly state?: EffectState;
  readonly decision?: Decision;
  readonly tool?: string;
  readonly agentId?: string;
  readonly target?: string;
  /** A rule of policy that matched. */
  readonly rule?: string;
  /** Whose key made the call. */
  readonly user?: string;
  readonly keyId?: string;
  /** A user who approved or rejected it. */
  readonly approver?: string;
  /** RFC 3339, inclusive. */
  readonly since?: string;
  /** RFC 3339, exclusive. */
  readonly until?: string;
  /** With the params of each call. */
  readonly params?: true;
  readonly limit?: number;
  readonly cursor?: string;
}

/** Filters of the ledger of what belongs to no workspace. */
export interface InstallationLedgerFilter {
  /** A kind of event, or what stands before the dot: `key`, `policy`, … */
  readonly kind?: string;
  /** Id of who caused the event. */
  readonly actor?: string;
  readonly user?: string;
  readonly keyId?: string;
  /** RFC 3339, inclusive. */
  readonly since?: string;
  /** RFC 3339, exclusive. */
  readonly until?: string;
  readonly limit?: number;
  readonly cursor?: string;
}

/** What is exported: effects without params and answers, receipts, events. */
export interface ExportRequest {
  /** `bundle`: JSON lines with the public keys and a signed end. Default: `jsonl`. */
  readonly format?: 'jsonl' | 'csv' | 'bundle';
  readonly what?: 'effects' | 'receipts' | 'events';
  readonly agentId?: string;
  readonly tool?: string;
  readonly target?: string;
  readonly rule?: string;
  readonly user?: string;
  readonly keyId?: string;
  /** RFC 3339, inclusive. */
  readonly since?: string;
  /** RFC 3339, exclusive; now, if absent. */
  readonly until?: string;
}

/** Filters of a workspace's ledger. An event must fit all that are given, by what it says or by the effect it is about. */
export interface LedgerFilter extends InstallationLedgerFilter {
  readonly effectId?: string;
  readonly agentId?: string;
  readonly tool?: string;
  readonly target?: string;
  readonly rule?: string;
}

export interface ResolveInput {
  readonly outcome: 'happened' | 'not_happened';
  readonly evidence?: Json;
  readonly comment?: string;
  /** Settle before the quiet time is over. Needs a second user; the receipt says so. */
  readonly force?: boolean;
}

/** Filters for the list of keys. A key must fit all that are given. */
export interface KeyFilter {
  readonly kind?: ApiKey['kind'];
  readonly workspace?: string;
  readonly agentId?: string;
  readonly userId?: string;
}

/** Proxied reads that policy would have stopped if it were enforced. */
export interface ObservedRead extends PassedRead {
  readonly observed: NonNullable<PassedRead['observed']>;
  readonly example: string;
}

export interface ObservedReadPage {
  readonly reads: readonly ObservedRead[];
  readonly nextCursor: string | null;
}

/** What came of wanting policies in force. */
export interface ChosenPolicies {
  /** What is in force now. */
  readonly version: string;
  /** What waits for another person, where policies come in force only when two stand behind them. */
  readonly proposal?: PolicyProposal;
}
