import type { KeyObject } from 'node:crypto';
import type { JsonObject } from '../json/value.ts';
import type { AllowanceStore, AllowanceRecord } from './model/allowance.ts';
import type { ApprovalStore } from './approval-store.ts';
import type { EntityStore } from './entity-store.ts';
import type { KeyStore } from './key-store.ts';
import type { NotificationStore } from './notification-store.ts';
import type { PasskeyStore } from './passkey-store.ts';
import type { PauseStore } from './model/pause.ts';
import type { PolicyStore } from './policy-store.ts';
import type { SessionStore } from './session-store.ts';
import type { Mismatch } from './model/action-call.ts';
import type { Amounts, KeptResult } from './model/answer.ts';
import type { ApprovalRecord } from './model/approval.ts';
import type {
  BudgetRow,
  EffectRecord,
  EffectState,
  Evidence,
  Fence,
  SettledBy,
  SignedReceipt,
  Stage,
  Tombstone,
} from './model/effect.ts';
import type { Decision, DeniedDecision, Reason } from './model/decision.ts';
import type { LedgerActor, LedgerFilter, LedgerDraft, LedgerEvent } from './model/ledger.ts';
import type { Page } from './model/page.ts';
import type { Observed, Verdict } from './model/verdict.ts';
import type { ReadingTurns } from './run/reading-turns.ts';
import type { ExportContext, ExportPart, ExportRequest } from './model/export.ts';
import type { ClaimRecord, ReservationRecord } from './model/claim.ts';
import type { Agent } from './model/principal.ts';

/**
 * The store cannot be reached, or cannot make a step durable. The step may or may not have happened; callers must not
 * assume either.
 */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

/** A record is in the archive, and cannot be read from there. The message is for people: which, where, and what to do. */
export class ArchiveUnavailable extends StoreUnavailable {}

/** There is no place for the call now. It was not admitted, and left no trace. */
export class NoPlace extends StoreUnavailable {}

/** The versions that the gateway evaluated with. Admission compares them with those in force. */
export interface SeenVersions {
  readonly policy: string;
  /** Grows with each pause that is set or lifted in the workspace. */
  readonly pauses: number;
}

export interface AdmitRequest
  extends Pick<
    EffectRecord,
    'workspace' | 'idempotencyKey' | 'fingerprint' | 'action' | 'actor' | 'metadata' | 'stages'
  > {
  /** Id of the effect, if this call makes one. (A refusal makes a separate effect too.) */
  readonly effectId: string;
  /** Id of the request for approval, if this call makes one; empty where its verdict asks for none. */
  readonly approvalId: string;
  /**
   * `null`: the key holds for ever. Else it is derived, and has generations: how long after the last one was settled a
   * call still joins it, ms.
   */
  readonly generationMs: number | null;
  readonly verdict: Verdict;
  /** The digest that votes are bound to; see `ApprovalRecord.digest`. */
  readonly approvalDigest: string;
  /**
   * What the call is for an allowance, and who registered its agent; only where every rule that asks for approval lets
   * calls be allowed ahead.
   */
  readonly alike?: { readonly likeness: string; readonly registeredBy: string | null } | undefined;
  /**
   * Where the gateway itself sends an approved call: the id of the granted request for approval. Then nothing else is
   * admitted, and the reason that stops the call is recorded once. `null` for the request of a caller.
   */
  readonly dispatches: string | null;
  /** The pause that stops this call, as the gateway sees pauses (`seen.pauses`). */
  readonly pausedBy: { readonly id: string; readonly reason: string; readonly until: number | null } | null;
  readonly seen: SeenVersions;
  readonly times: {
    readonly dispatchWindowMs: number;
    readonly timeoutMs: number;
    readonly maxProcessingMs: number;
    /** How long after the first dispatch the upstream removes duplicates; `null` where it does not. */
    readonly idempotentForMs: number | null;
  };
  readonly owner: string;
  readonly nonce: string;
  readonly claimId: string | null;
  readonly reservationId: string | null;
  readonly sealed: string;
}

/** A refusal, as the caller gets it. `effectId` names the refusal, or the effect that the key was already bound to. */
export interface Refusal {
  readonly kind: 'refused';
  readonly effectId: string;
  readonly decision: DeniedDecision | 'idempotency_conflict';
  readonly reason: Reason;
  readonly attempt: number;
  readonly budgets: readonly BudgetRow[];
  readonly retryAfterMs: number | null;
  /** The key belongs to another agent's action. Two agents use one key, so somebody must look at it. */
  readonly foreign: boolean;
}

/** The answer of the one atomic admission. */
export type Admission =
  /** The call may be sent: it is admitted and durable, and has its holds. */
  | {
      readonly kind: 'dispatch';
      readonly effect: EffectRecord;
      readonly budgets: readonly BudgetRow[];
      /** In mode `observe`: what an obligation would have decided. */
      readonly observed: Observed | null;
      /** Place of the event `effect.admitted` in the ledger. */
      readonly ledger: { readonly epoch: number; readonly seq: number };
      readonly approval: ApprovalRecord | null;
      /** The allowance that let it in, with this use. Absent: none. */
      readonly allowance?: AllowanceRecord;
    }
  | {
      readonly kind: 'pending';
      readonly effect: EffectRecord;
      readonly approval: ApprovalRecord;
      readonly created: boolean;
    }
  /**
   * The key belongs to an effect that exists: committed, executing or unknown. `safeToRetry` matters only for unknown
   * ones.
   */
  | {
      readonly kind: 'existing';
      readonly effect: EffectRecord;
      readonly safeToRetry: boolean;
      readonly retryAfterMs: number | null;
    }
  /** The record was removed by age, but its receipt was kept. */
  | { readonly kind: 'expired'; readonly tombstone: Tombstone }
  | Refusal
  /** Policy, pauses or the window of a budget have changed since the gateway evaluated. It must evaluate again. */
  | { readonly kind: 'stale'; readonly versions: SeenVersions; readonly now: number }
  /**
   * The call would go beyond just these limits, and people may be asked about that: the gateway evaluates again with
   * them. Nothing was written.
   */
  | { readonly kind: 'exceeds'; readonly limits: readonly string[] };

/** An outcome as an owner, a probe or a person reports it. The receipt of `committed` is already signed. */
export type SettleOutcome =
  | {
      readonly kind: 'committed';
      readonly receipt: SignedReceipt;
      readonly result: KeptResult | null;
      readonly accepted: boolean;
      readonly responseTruncated: boolean;
      /** What was really spent. Absent: what was held. */
      readonly amounts?: Amounts;
    }
  | { readonly kind: 'failed'; readonly result: KeptResult | null }
  | { readonly kind: 'unknown' }
  /** Refused before the first byte, because of drift or a pause. */
  | {
      readonly kind: 'denied';
      readonly decision: 'denied_claim' | 'denied_paused' | 'denied_policy';
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
  | { readonly kind: 'settled' }
  /**
   * The effect was settled in another way, or a newer attempt owns it. Nothing changed, except that a contradiction is
   * recorded.
   */
  | { readonly kind: 'refused'; readonly effect: EffectRecord; readonly contradiction: boolean }
  | { readonly kind: 'absent' };

export interface ResolveRequest {
  readonly workspace: string;
  readonly effectId: string;
  /** `happened` carries the signed receipt. */
  readonly outcome: { readonly kind: 'happened'; readonly receipt: SignedReceipt } | { readonly kind: 'not_happened' };
  readonly settledBy: Extract<SettledBy, { by: 'resolve' | 'probe' }>;
  readonly actor: LedgerActor;
  /** Fence of the attempt that was current when the receipt was made. */
  readonly fence: Fence;
  readonly force: boolean;
}

export type Resolution =
  | { readonly kind: 'resolved'; readonly effect: EffectRecord }
  /** The same resolution was made earlier. */
  | { readonly kind: 'unchanged'; readonly effect: EffectRecord }
  | { readonly kind: 'too_early'; readonly retryAfterMs: number; readonly effect: EffectRecord }
  /** It was settled the other way earlier. */
  | { readonly kind: 'already_resolved'; readonly effect: EffectRecord }
  | { readonly kind: 'not_unknown'; readonly effect: EffectRecord }
  /** Another attempt has begun since the effect was read. */
  | { readonly kind: 'moved'; readonly effect: EffectRecord }
  | { readonly kind: 'absent' };

export interface EffectFilter extends Pick<LedgerFilter, 'target' | 'keyId' | 'since' | 'until' | 'limit' | 'cursor'> {
  readonly state: EffectState | null;
  readonly decision: Decision | null;
  readonly tool: string | null;
  readonly agentId: string | null;
  /** A rule that decided, or that matched. */
  readonly rule?: string | undefined;
  /** The user that the calling key belongs to. */
  readonly user?: string | undefined;
  /** A user who approved or rejected it. */
  readonly approver?: string | undefined;
}

export interface SweepReport {
  /** Executing effects whose lease was over. They are unknown now. */
  readonly lost: number;
  readonly approvalsExpired: number;
  /** Records that were old enough to be removed. They are tombstones now, or gone. */
  readonly aged: number;
  /** Effects past their age that stay, because they are not settled. */
  readonly unsettled: number;
  /** When the record was made that the look for old ones has reached; `null` where it has seen them all. */
  readonly reached: number | null;
  /** When the oldest effect was made whose outcome is not known, ms; `null`: there is none. */
  readonly oldestUnknown: number | null;
  /** `null`: nothing is archived. */
  readonly archive: {
    /** Why the last segment could not be written; `null`: it was. */
    readonly failure: string | null;
    /** The last one that this process wrote, and when, ms. */
    readonly last: { readonly segment: number; readonly at: number } | null;
  } | null;
}

export interface StoreHealth {
  readonly ready: boolean;
  /** What is wrong, for `/readyz`; `null` when ready. */
  readonly problem: {
    /**
     * `clock_ahead`: the machine's clock cannot be trusted, so nothing is admitted. `store_sync_failed`: a sync failed,
     * so the process must end; the next start writes the store to disk anew.
     */
    readonly code: 'store_unavailable' | 'store_rolled_back' | 'store_full' | 'store_sync_failed' | 'clock_ahead';
    readonly message: string;
  } | null;
  /** The durability that the store provides now, for `/readyz` and receipts: `fsync` on the embedded store. */
  readonly durability: string;
  readonly epoch: number;
  /** What somebody should look at although it is ready; absent: nothing. */
  readonly warning?: string;
}

/** How often the store was asked to commit what a step wrote, since this process began, and how it answered. */
export interface StoreCommits {
  readonly done: number;
  /** Something that the step had looked at had changed, or a limit would have been passed. The step was run again. */
  readonly moved: number;
  /** Steps that moved so often that they were given up: the caller was told that the store is not available. */
  readonly givenUp: number;
}

/** What a method of the store is asked, and what it answers. */
export type AskedOf<Method extends keyof EffectStore> = Parameters<Extract<EffectStore[Method], Answering>>[0];
export type AnswerOf<Method extends keyof EffectStore> = Awaited<ReturnType<Extract<EffectStore[Method], Answering>>>;
type Answering = (...asked: never[]) => unknown;

/**
 * The store, as whole steps. Every step is atomic, and durable when its promise resolves. Answers never show anything
 * that is not durable. Times are by the store's clock: `now()` is its time when last seen, plus the monotonic time
 * since then. A step that cannot be made durable rejects with {@link StoreUnavailable}.
 */
export interface EffectStore
  extends ApprovalStore,
    AllowanceStore,
    PauseStore,
    PolicyStore,
    KeyStore,
    PasskeyStore,
    SessionStore,
    EntityStore,
    NotificationStore {
  /** Id of this installation. It is kept in the store and beside the gateway. */
  readonly installId: string;
  readonly now: () => number;
  health(): StoreHealth;
  commits(): StoreCommits;
  /** For what is read from here and takes long to show. */
  readonly turns: ReadingTurns;

  admit(request: AdmitRequest): Promise<Admission>;
  /** What {@link admit} would answer now. Writes nothing. */
  preview(request: AdmitRequest): Promise<Admission>;
  settle(request: SettleRequest): Promise<Settlement>;
  resolve(request: ResolveRequest): Promise<Resolution>;
  /** Erases params, salts and the kept answer of an effect that is over. Its receipt stays. */
  erase(request: { readonly workspace: string; readonly effectId: string; readonly actor: LedgerActor }): Promise<
    | { readonly kind: 'erased' }
    | { readonly kind: 'unchanged' }
    /** The effect waits, runs or is unknown, so its params are still needed. */
    | { readonly kind: 'needed' }
    | { readonly kind: 'absent' }
  >;
  /** Fixes when an unknown effect is probed next. `moved`: the effect is not as it was seen, and nothing is fixed. */
  planProbe(request: {
    readonly workspace: string;
    readonly effectId: string;
    /** Fence of the attempt that is asked about. */
    readonly fence: Fence;
    /** The due time that it has to have for this to count; `unplanned`: none yet, `any`: whatever it is. */
    readonly due: number | 'unplanned' | 'any';
    /** When it is probed next, ms; `null`: not by itself any more. */
    readonly next: number | null;
    /** The reading that was made, which settles nothing; `null`: one is to be made. It goes on record in any case. */
    readonly reading: { readonly actor: LedgerActor; readonly data: JsonObject } | null;
  }): Promise<'planned' | 'moved'>;
  /**
   * Unknown effects of a tool that are due to be probed, at most `limit`, those due for longest first. The ones that no
   * gateway has probed are due `afterMs` after they became unknown.
   */
  probesDue(workspace: string, tool: string, afterMs: number, limit: number): Promise<readonly EffectRecord[]>;
  /** Ends what is over (leases, approvals, records to remove by age), at most `limit` of each. */
  sweep(limit: number): Promise<SweepReport>;

  effect(workspace: string, id: string): Promise<EffectRecord | null>;
  effects(workspace: string, filter: EffectFilter): Promise<Page<EffectRecord>>;
  /** The effect that an idempotency key is used for; `null` where it is free. */
  boundTo(workspace: string, idempotencyKey: string): Promise<string | null>;
  /** Receipt of an effect, even if only its tombstone is left. */
  receipt(workspace: string, effectId: string): Promise<SignedReceipt | null>;
  /**
   * Lends it the key that receipts of this head are signed with: a store that runs steps in a thread of its own signs
   * them there, before what they are of is committed.
   */
  signWith(head: string, key: KeyObject): void;

  /** Rows whose window has not ended. */
  budgets(workspace: string): Promise<readonly BudgetRow[]>;
  /** How many claims, or reservations, of one agent or key count toward its cap. */
  capCounts(workspace: string): Promise<
    readonly {
      readonly cap: string;
      /** What the store's limit is held against. */
      readonly counter: number;
      /** Those on record. What is over counts until it is given back. */
      readonly oneByOne: number;
    }[]
  >;

  // The ledger: what happened, in order.
  effectLedger(workspace: string, effectId: string): Promise<readonly LedgerEvent[]>;
  /** The same for people, who wait so that calls need not. */
  effectLedgerInTurns(workspace: string, effectId: string): Promise<readonly LedgerEvent[]>;
  /** Events with `seq > after`, in order. */
  ledger(workspace: string, after: number, limit: number): Promise<readonly LedgerEvent[]>;
  /** Events with `seq < before`, newest first; `null` starts with the newest. */
  ledgerBefore(workspace: string, before: number | null, limit: number): Promise<readonly LedgerEvent[]>;
  /** Newest first. A page looks at a part of the ledger, and may be short though others follow. */
  ledgerPage(workspace: string, filter: LedgerFilter): Promise<Page<LedgerEvent>>;
  /** What is written after it has begun is left out. The parts are made as they are taken. */
  exported(request: ExportRequest, context: ExportContext): AsyncIterable<ExportPart>;
  /** Appends events that belong to no step (batches of reads, loaded policies). */
  append(workspace: string, events: readonly LedgerDraft[]): Promise<void>;

  // Claims: what an agent has for itself, for a time.
  /** `ttlMs` counts from the store's `now`. */
  takeClaim(request: {
    readonly id: string;
    readonly workspace: string;
    readonly target: string;
    readonly agentId: string;
    readonly keyId: string;
    readonly ttlMs: number;
    readonly actor: LedgerActor;
  }): Promise<
    | { readonly kind: 'made'; readonly claim: ClaimRecord }
    | { readonly kind: 'held'; readonly claim: ClaimRecord }
    | { readonly kind: 'too_many'; readonly of: 'agent' | 'key'; readonly limit: number }
  >;
  renewClaim(workspace: string, id: string, ttlMs: number, actor: LedgerActor): Promise<ClaimRecord | null>;
  releaseClaim(workspace: string, id: string, actor: LedgerActor): Promise<ClaimRecord | null>;
  claim(workspace: string, id: string): Promise<ClaimRecord | null>;
  claims(workspace: string): Promise<readonly ClaimRecord[]>;

  // Reservations: units of a pool that an agent holds.
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
  }): Promise<
    | { readonly kind: 'made'; readonly reservation: ReservationRecord }
    | { readonly kind: 'full'; readonly free: number }
    | { readonly kind: 'too_many'; readonly limit: number }
  >;
  releaseReservation(workspace: string, id: string, actor: LedgerActor): Promise<ReservationRecord | null>;
  reservation(workspace: string, id: string): Promise<ReservationRecord | null>;
  reservations(workspace: string): Promise<readonly ReservationRecord[]>;

  // Workspaces, agents, and since when users are known.
  /**
   * Records the users that the configuration names, with the time when each was first seen. The users of the very first
   * call get the time 0, because nobody knows how long they existed before. The ledger has who came, who is named no more,
   * and which roles were given and taken.
   */
  seeUsers(rolesOf: ReadonlyMap<string, readonly string[]>, actor: LedgerActor): Promise<void>;
  /** When a configuration in force first named a user, ms; `null` where that is not recorded yet. */
  userSince(id: string): Promise<number | null>;
  putWorkspace(id: string, actor: LedgerActor): Promise<boolean>;
  workspaces(): Promise<readonly string[]>;
  /**
   * Registers an agent. `taken`: there is another of this id; it stays. `too_many`: the user has registered
   * {@link MOST_AGENTS_OF_USER} agents.
   */
  putAgent(agent: Agent, actor: LedgerActor): Promise<'put' | 'taken' | 'too_many'>;
  agents(): Promise<readonly Agent[]>;

  /** Completes the running steps, then closes files and connections. */
  close(): Promise<void>;
}
