import type { Mismatch } from './model/action-call.ts';
import type { ApprovalRecord } from './model/approval.ts';
import type { BudgetRow } from './model/budget.ts';
import type { ClaimRecord } from './model/claim.ts';
import type { KeyRecord } from './model/key.ts';
import type { PauseRecord, PauseScope } from './model/pause.ts';
import type { ReservationRecord } from './model/reservation.ts';
import type { Decision, DeniedDecision, Reason } from './model/decision.ts';
import type {
  EffectAction,
  EffectActor,
  EffectRecord,
  EffectState,
  Evidence,
  Fence,
  KeptResult,
  SettledBy,
  SignedReceipt,
  Stage,
  Tombstone,
} from './model/effect.ts';
import type { JsonObject } from '../json/value.ts';
import type { LedgerActor, LedgerDraft, LedgerEvent } from './model/ledger.ts';
import type { Agent, KeyKind } from './model/principal.ts';
import type { Observed, Verdict } from './model/verdict.ts';

/**
 * The store cannot be reached, or cannot make a step durable. Nothing of the step may be assumed to have happened,
 * nor not to have happened.
 */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

/** There is no place for the call now: it was not admitted, and nothing of it stays. */
export class NoPlace extends StoreUnavailable {}

/** What the gateway had seen of the store's settings when it evaluated; admission compares. */
export interface SeenVersions {
  readonly policy: string;
  /** Grows with each pause set or lifted in the workspace. */
  readonly pauses: number;
}

export interface AdmitRequest {
  readonly workspace: string;
  /** Id for the effect if this call makes one (a refusal has one of its own too). */
  readonly effectId: string;
  /** Id for the request for approval if this call makes one. */
  readonly approvalId: string;
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly action: EffectAction;
  readonly actor: EffectActor;
  readonly verdict: Verdict;
  /** Digest that a vote is bound to; see `ApprovalRecord.digest`. */
  readonly approvalDigest: string;
  /**
   * The granted request for approval whose call this sends, where the gateway sends it by itself: nothing else is
   * admitted then, and what stops it is said once. `null` where a caller asks.
   */
  readonly dispatches: string | null;
  /** The pause that stops this call, by the gateway's view of pauses (`seen.pauses`). */
  readonly pausedBy: { readonly id: string; readonly reason: string; readonly until: number | null } | null;
  readonly seen: SeenVersions;
  readonly times: {
    readonly dispatchWindowMs: number;
    readonly timeoutMs: number;
    readonly maxProcessingMs: number;
    /** How long the upstream removes duplicates after the first dispatch; `null` where it does not. */
    readonly idempotentForMs: number | null;
  };
  readonly owner: string;
  readonly nonce: string;
  readonly claimId: string | null;
  readonly reservationId: string | null;
  readonly metadata: JsonObject | null;
  readonly sealed: string;
  /** Stages so far; kept with the effect. */
  readonly stages: readonly Stage[];
}

/** A refusal: what the caller is told. `effectId` is the refusal's own unless the key was bound before. */
export interface Refusal {
  readonly kind: 'refused';
  readonly effectId: string;
  readonly decision: DeniedDecision | 'idempotency_conflict';
  readonly reason: Reason;
  readonly attempt: number;
  readonly budgets: readonly BudgetRow[];
  readonly retryAfterMs: number | null;
  /** A conflict with another agent's action: two agents use one key, and somebody has to look at that. */
  readonly foreign: boolean;
}

/** The answer of the one atomic admission. */
export type Admission =
  /** The call may be sent: admitted, held and durable. */
  | {
      readonly kind: 'dispatch';
      readonly effect: EffectRecord;
      readonly budgets: readonly BudgetRow[];
      /** Where the mode is `observe`: what an obligation would have said. */
      readonly observed: Observed | null;
      /** Place of `effect.admitted` in the ledger. */
      readonly ledger: { readonly epoch: number; readonly seq: number };
      /** The approval that this attempt uses up. */
      readonly approval: ApprovalRecord | null;
    }
  | {
      readonly kind: 'pending';
      readonly effect: EffectRecord;
      readonly approval: ApprovalRecord;
      readonly created: boolean;
    }
  /** The key is bound to an effect that is committed, executing or unknown. `safeToRetry` only matters for the last. */
  | {
      readonly kind: 'existing';
      readonly effect: EffectRecord;
      readonly safeToRetry: boolean;
      readonly retryAfterMs: number | null;
    }
  /** The record's retention is over, its receipt is not. */
  | { readonly kind: 'expired'; readonly tombstone: Tombstone }
  | Refusal
  /** Policy or pauses have changed since the gateway looked, or a budget's window has: evaluate again. */
  | { readonly kind: 'stale'; readonly versions: SeenVersions; readonly now: number };

/** What an owner, a probe or a person says of the outcome. The receipt of `committed` is signed before. */
export type SettleOutcome =
  | {
      readonly kind: 'committed';
      readonly receipt: SignedReceipt;
      readonly result: KeptResult | null;
      readonly accepted: boolean;
      readonly responseTruncated: boolean;
    }
  | { readonly kind: 'failed'; readonly result: KeptResult | null }
  | { readonly kind: 'unknown' }
  /** Before the first byte: drift found, or a pause heard. */
  | {
      readonly kind: 'denied';
      readonly decision: 'denied_claim' | 'denied_paused';
      readonly reason: Reason;
      readonly mismatches: readonly Mismatch[];
    };

export interface SettleRequest {
  readonly workspace: string;
  readonly effectId: string;
  readonly fence: Fence;
  readonly outcome: SettleOutcome;
  readonly settledBy: SettledBy;
  readonly evidence: Evidence;
  /** Appended to the effect's stages. */
  readonly stages: readonly Stage[];
}

export type Settlement =
  | { readonly kind: 'settled'; readonly effect: EffectRecord }
  /** The effect is settled otherwise, or owned by a newer attempt: nothing was changed (a contradiction is on record). */
  | { readonly kind: 'refused'; readonly effect: EffectRecord; readonly contradiction: boolean }
  | { readonly kind: 'absent' };

export interface ResolveRequest {
  readonly workspace: string;
  readonly effectId: string;
  /** `happened` carries the signed receipt. */
  readonly outcome: { readonly kind: 'happened'; readonly receipt: SignedReceipt } | { readonly kind: 'not_happened' };
  readonly settledBy: Extract<SettledBy, { by: 'resolve' | 'probe' }>;
  readonly actor: LedgerActor;
  /** Fence of the attempt that was looked at when the receipt was made. */
  readonly fence: Fence;
  readonly force: boolean;
}

export type Resolution =
  | { readonly kind: 'resolved'; readonly effect: EffectRecord }
  /** The same resolution was made before. */
  | { readonly kind: 'unchanged'; readonly effect: EffectRecord }
  | { readonly kind: 'too_early'; readonly retryAfterMs: number; readonly effect: EffectRecord }
  /** Settled the other way before. */
  | { readonly kind: 'already_resolved'; readonly effect: EffectRecord }
  | { readonly kind: 'not_unknown'; readonly effect: EffectRecord }
  /** Another attempt has begun since the effect was looked at. */
  | { readonly kind: 'moved'; readonly effect: EffectRecord }
  | { readonly kind: 'absent' };

export interface VoteRequest {
  readonly workspace: string;
  readonly approvalId: string;
  readonly verdict: 'approve' | 'reject';
  readonly user: string;
  readonly keyId: string;
  /** Since when there have been both the key and the user; later than the request: refused. */
  readonly voterSince: number;
  readonly comment: string | null;
  /** Requirements that the voter's roles or name qualify for. */
  readonly requirements: readonly number[];
  readonly actor: LedgerActor;
}

export type VoteResult =
  /** `granted`: the quorum is complete; the caller dispatches through `admit`. */
  | { readonly kind: 'counted'; readonly approval: ApprovalRecord; readonly effect: EffectRecord }
  /** The same person has approved before: one vote. */
  | { readonly kind: 'voted_already'; readonly approval: ApprovalRecord; readonly effect: EffectRecord }
  | { readonly kind: 'already_decided'; readonly approval: ApprovalRecord }
  /** Key or user is younger than the request, or the voter asked for it. */
  | { readonly kind: 'own_request'; readonly approval: ApprovalRecord }
  | { readonly kind: 'not_an_approver'; readonly approval: ApprovalRecord }
  | { readonly kind: 'absent' };

/** Ends a granted request for approval whose call cannot be made any more. */
export interface GiveUpRequest {
  readonly workspace: string;
  readonly approvalId: string;
  readonly decision: DeniedDecision;
  readonly reason: Reason;
  readonly actor: LedgerActor;
}

export type GiveUpResult =
  | { readonly kind: 'given_up'; readonly approval: ApprovalRecord; readonly effect: EffectRecord }
  /** It is not granted, or not any more. */
  | { readonly kind: 'already_decided'; readonly approval: ApprovalRecord }
  | { readonly kind: 'absent' };

/** The definition of a budget that its rows depend on. */
export interface BudgetDefinition {
  readonly budget: string;
  readonly unit: string;
  /** Canonical text of the window, e.g. `day Europe/Berlin`, `rolling 604800000`. */
  readonly window: string;
  readonly reset: boolean;
}

export type PolicyActivation =
  | { readonly kind: 'active'; readonly version: string }
  /** Unit or window of a budget with rows would change without `reset: true`. */
  | {
      readonly kind: 'budget_redefined';
      readonly budgets: readonly { readonly budget: string; readonly was: string; readonly is: string }[];
    };

export interface Page<T> {
  readonly items: readonly T[];
  /** Pass as `cursor` for the next page; `null` at the end. */
  readonly next: string | null;
}

/**
 * Bytes of records on one page of effects; a page has one item at least. Records hold sealed params and answers, of up
 * to 1.5 MB each: a page of 200 took hundreds of MB in both threads, and held the event loop while it was read.
 */
export const PAGE_BYTES = 2 * 1024 * 1024;

export interface EffectFilter {
  readonly state: EffectState | null;
  readonly decision: Decision | null;
  readonly tool: string | null;
  readonly agentId: string | null;
  /** ms, inclusive. */
  readonly since: number | null;
  /** ms, exclusive. */
  readonly until: number | null;
  readonly limit: number;
  readonly cursor: string | null;
}

export interface ApprovalFilter {
  readonly status: ApprovalRecord['status'] | null;
  readonly agentId: string | null;
  readonly limit: number;
  readonly cursor: string | null;
}

export interface SweepReport {
  /** Executing effects whose lease was over: now unknown. */
  readonly lost: number;
  readonly approvalsExpired: number;
  /** Records whose retention was over: now tombstones, or gone. */
  readonly aged: number;
}

/** `clock_ahead`: the machine's clock is not believed, and nothing is admitted. `store_sync_failed`: a sync failed, so the process has to end; the next start puts the store on the disk anew. */
type StoreProblem = 'store_unavailable' | 'store_rolled_back' | 'store_full' | 'store_sync_failed' | 'clock_ahead';

export interface StoreHealth {
  readonly ready: boolean;
  /** What is wrong, for `/readyz`; `null` when ready. */
  readonly problem: {
    readonly code: StoreProblem;
    readonly message: string;
  } | null;
  /** The durability in force, for `/readyz` and receipts: `fsync` on the embedded store. */
  readonly durability: string;
  readonly epoch: number;
}

/** Claim, reservation and pause operations answer with the record, or say who is in the way. */
export type ClaimResult =
  | { readonly kind: 'made'; readonly claim: ClaimRecord }
  | { readonly kind: 'held'; readonly claim: ClaimRecord }
  | { readonly kind: 'too_many'; readonly of: 'agent' | 'key'; readonly limit: number };
export type ReservationResult =
  | { readonly kind: 'made'; readonly reservation: ReservationRecord }
  | { readonly kind: 'full'; readonly free: number }
  | { readonly kind: 'too_many'; readonly limit: number };
export type PauseLift =
  | { readonly kind: 'lifted'; readonly pause: PauseRecord }
  | { readonly kind: 'administrative_only'; readonly pause: PauseRecord }
  | { readonly kind: 'absent' };

/** What tells master secrets from others, and nothing else of them. */
export interface SecretMarks {
  /** Of the secret in force, then of those that are being rotated out. */
  readonly current: readonly [string, ...string[]];
  /**
   * Of the same secrets, as stores have them whose keys were put before there were seals. Those keys are sealed, once:
   * nobody can make the mark that the store has from then on, and this one does not come back.
   */
  readonly unsealed: readonly string[];
}

export type Binding =
  | {
      readonly kind: 'bound';
      /** Keys of before that were sealed now. */
      readonly sealed: number;
    }
  /** The store belongs to another secret, and nothing was changed. */
  | { readonly kind: 'other' };

/** Forgets what an effect's receipt only commits to: params, salts, and the kept answer. */
export interface EraseRequest {
  readonly workspace: string;
  readonly effectId: string;
  readonly actor: LedgerActor;
}

export type Erasure =
  | { readonly kind: 'erased' }
  /** There was nothing left to erase. */
  | { readonly kind: 'unchanged' }
  /** It waits, runs, or nobody knows: the params are still needed. */
  | { readonly kind: 'needed' }
  | { readonly kind: 'absent' };

/**
 * The store, in whole steps. Every step is atomic, and durable when its promise resolves; answers never show what is
 * not durable. Times are the store's (`now()` is the store's time as last seen plus monotonic elapsed time).
 * A step that cannot be made durable rejects with {@link StoreUnavailable}.
 */
export interface EffectStore {
  /** Id of this installation; lives in the store and beside the gateway. */
  readonly installId: string;
  now(): number;
  health(): StoreHealth;

  admit(request: AdmitRequest): Promise<Admission>;
  /** What {@link admit} would answer now; writes nothing. */
  preview(request: AdmitRequest): Promise<Admission>;
  settle(request: SettleRequest): Promise<Settlement>;
  resolve(request: ResolveRequest): Promise<Resolution>;
  vote(request: VoteRequest): Promise<VoteResult>;
  giveUp(request: GiveUpRequest): Promise<GiveUpResult>;
  /** Forgets params, salts and the kept answer of an effect that is over; its receipt stays. */
  erase(request: EraseRequest): Promise<Erasure>;
  /** Declares what is over (leases, approvals, retention), at most `limit` of each. */
  sweep(limit: number): Promise<SweepReport>;
  /** Approvals that have their quorum and were not dispatched yet (a gateway died in between). */
  grantedApprovals(limit: number): Promise<readonly ApprovalRecord[]>;

  effect(workspace: string, id: string): Promise<EffectRecord | null>;
  effects(workspace: string, filter: EffectFilter): Promise<Page<EffectRecord>>;
  /** Receipt of an effect, also when only its tombstone is left. */
  receipt(workspace: string, effectId: string): Promise<SignedReceipt | null>;
  effectLedger(workspace: string, effectId: string): Promise<readonly LedgerEvent[]>;
  /** Events with `seq > after`, in order. */
  ledger(workspace: string, after: number, limit: number): Promise<readonly LedgerEvent[]>;
  /** Events with `seq < before`, newest first; `null` begins with the newest. */
  ledgerBefore(workspace: string, before: number | null, limit: number): Promise<readonly LedgerEvent[]>;
  /** Appends events that belong to no step (reads in batches, loaded policies). */
  append(workspace: string, events: readonly LedgerDraft[]): Promise<void>;

  approval(workspace: string, id: string): Promise<ApprovalRecord | null>;
  /** Newest first. A page may have fewer than `limit` though others follow. */
  approvals(workspace: string, filter: ApprovalFilter): Promise<Page<ApprovalRecord>>;

  /** `ttlMs` counts from the store's now. */
  takeClaim(request: {
    readonly id: string;
    readonly workspace: string;
    readonly target: string;
    readonly agentId: string;
    readonly keyId: string;
    readonly ttlMs: number;
    readonly actor: LedgerActor;
  }): Promise<ClaimResult>;
  renewClaim(workspace: string, id: string, ttlMs: number, actor: LedgerActor): Promise<ClaimRecord | null>;
  releaseClaim(workspace: string, id: string, actor: LedgerActor): Promise<ClaimRecord | null>;
  claim(workspace: string, id: string): Promise<ClaimRecord | null>;
  claims(workspace: string): Promise<readonly ClaimRecord[]>;

  makeReservation(request: {
    readonly id: string;
    readonly workspace: string;
    readonly pool: string;
    readonly capacity: number;
    readonly units: number;
    readonly agentId: string;
    readonly keyId: string;
    readonly ttlMs: number;
    readonly actor: LedgerActor;
  }): Promise<ReservationResult>;
  releaseReservation(workspace: string, id: string, actor: LedgerActor): Promise<ReservationRecord | null>;
  reservation(workspace: string, id: string): Promise<ReservationRecord | null>;
  reservations(workspace: string): Promise<readonly ReservationRecord[]>;

  setPause(request: {
    readonly id: string;
    readonly workspace: string;
    readonly scope: PauseScope;
    readonly reason: string;
    readonly until: number | null;
    readonly by: PauseRecord['by'];
    readonly actor: LedgerActor;
  }): Promise<PauseRecord>;
  liftPause(workspace: string, id: string, by: KeyKind, actor: LedgerActor): Promise<PauseLift>;
  /** Pauses in force, with the version that {@link SeenVersions.pauses} carries. */
  pauses(workspace: string): Promise<{ readonly version: number; readonly pauses: readonly PauseRecord[] }>;

  /** Rows whose window is not over. */
  budgets(workspace: string): Promise<readonly BudgetRow[]>;
  /** Makes a policy version the one that admissions must have seen. */
  activatePolicy(version: string, budgets: readonly BudgetDefinition[]): Promise<PolicyActivation>;

  putKey(key: KeyRecord, actor: LedgerActor): Promise<void>;
  /** Puts a key where there is none at all. @returns whether it did; of several gateways at once, one */
  putFirstKey(key: KeyRecord, actor: LedgerActor): Promise<boolean>;
  /** By the handle in the clear. A key whose record is not as it was sealed is as if it were not there, here and in lists. */
  key(handle: string): Promise<KeyRecord | null>;
  keys(user: string | null): Promise<readonly KeyRecord[]>;
  /**
   * Sets `revokedAt` (now) or, on rotation, `expiresAt` and `replacedBy`. What is revoked or replaced already is not
   * replaced: the record that comes back then names no `by` of this call.
   */
  endKey(
    id: string,
    end: { readonly kind: 'revoked' } | { readonly kind: 'replaced'; readonly by: string; readonly overlapMs: number },
    actor: LedgerActor,
  ): Promise<KeyRecord | null>;
  /** Best effort, at most once a minute and key. */
  touchKeys(ids: readonly string[], at: number): Promise<void>;
  /** Called with the handles whose keys may have changed, `null` for "all of them". */
  onKeysChanged(listener: (handles: readonly string[] | null) => void): void;
  /** Called with the workspaces whose pauses have changed. */
  onPausesChanged(listener: (workspace: string) => void): void;

  /** Whether any key was ever put, sound or not. */
  hasKeys(): Promise<boolean>;

  /** What tells of the master secret that the store is used with, see {@link bindSecret}; `null` before the first. */
  secretMark(): Promise<string | null>;
  /**
   * Binds the store to a master secret by a mark that is derived from it. Where the store has none, or one of these,
   * the first of them is its mark from now on.
   */
  bindSecret(marks: SecretMarks): Promise<Binding>;

  /**
   * Notes users that the configuration names, with the time when each was first named. Those that are noted first of all
   * were there before anybody looked: since 0.
   */
  seeUsers(ids: readonly string[]): Promise<void>;
  /** When a user was first named by a configuration in force, ms; `null` where none has been noted. */
  userSince(id: string): Promise<number | null>;
  putWorkspace(id: string, actor: LedgerActor): Promise<boolean>;
  workspaces(): Promise<readonly string[]>;
  putAgent(agent: Agent, actor: LedgerActor): Promise<void>;
  agents(): Promise<readonly Agent[]>;

  /** Runs what is under way to its end, and lets go of files and connections. */
  close(): Promise<void>;
}
