import type { Answered, KeptResult } from './answer.ts';
import type { Mismatch, Via } from './action-call.ts';
import type { DeniedDecision, Reason, Decision } from './decision.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import type { KeyKind } from './principal.ts';
import type { VerdictTrace } from './verdict.ts';

/** Names one attempt. Every settlement is compared with it, so that only the owner of the attempt can settle it. */
export interface Fence {
  /** Epoch of the store. It grows when the store may have lost acknowledged writes. */
  readonly epoch: number;
  /** Number of the attempt within the effect, starting at 1. */
  readonly n: number;
  /** Random value that the owner made for this one admission. */
  readonly nonce: string;
}

/** Ownership of a running attempt. All times are ms since the epoch by the store's clock. */
export interface Lease {
  readonly fence: Fence;
  /** Boot id of the gateway process that owns the attempt. */
  readonly owner: string;
  readonly admittedAt: number;
  /** After this time the owner must not send. */
  readonly dispatchBy: number;
  /** After this time others may declare the outcome unknown, and nobody may send. */
  readonly leaseEnd: number;
  /** Until this time `not_happened` is refused, because something may still be on its way. */
  readonly quiesceUntil: number;
}

/** Units set aside in one budget row, and the window that they count in. */
export interface Hold extends Pick<BudgetRow, 'budget' | 'unit' | 'bucket' | 'window'> {
  readonly amount: number;
}

/** Units of a resource pool that an effect uses while it runs. */
export interface PoolUse {
  readonly pool: string;
  readonly units: number;
}

/** Who made an outcome final. */
export type SettledBy =
  | { readonly by: 'owner' }
  | { readonly by: 'late_answer' }
  | { readonly by: 'probe'; readonly evidence: JsonObject }
  | {
      readonly by: 'resolve';
      readonly keyId: string;
      readonly user: string | null;
      readonly forced: boolean;
      readonly comment: string | null;
      readonly evidence: Json;
    };

/** Code of evidence: the upstream did nothing now, and may do it later. */
export const BUSY = 'busy';

/** What was observed of the upstream: the evidence for an outcome. */
export interface Evidence {
  /**
   * Stable code: `http_status`, `not_dispatched`, `connect_failed`, `timeout`, `reset`, `malformed`, `lease_over`,
   * `declared`, `busy`, …
   */
  readonly code: string;
  readonly message: string;
  /** What its answer said of itself; `null` where no answer was read. */
  readonly answered: Answered | null;
  readonly startedAt: number | null;
  readonly endedAt: number | null;
  /**
   * SHA-256 (base64url) of what was sent: over HTTP, method, path with query, and body. Absent where nothing was sent,
   * or no gateway saw it.
   */
  readonly sent?: string;
}

/** A signed receipt: the signed bytes, which are never made a second time. */
export interface SignedReceipt {
  readonly id: string;
  /** Compact JWS. */
  readonly jws: string;
  /** What it is put together from, where it was just issued. */
  readonly parts?: ReceiptParts;
}

/** The parts of a receipt that was just issued. */
export interface ReceiptParts {
  readonly head: string;
  /** As the text that it is. */
  readonly payload: string;
  /** Made when it is first read: Ed25519 gives the same bytes wherever and whenever it signs. */
  readonly signature: string;
  /** The signature as far as it was made; another thread that has the same key may make it. */
  made: string | null;
}

/** The state of an effect, with the data that belongs to this state. The transitions are in `lifecycle.ts`. */
export type Life =
  | { readonly state: 'pending_approval'; readonly approvalId: string }
  | { readonly state: 'executing'; readonly lease: Lease }
  | {
      readonly state: 'committed';
      readonly at: number;
      readonly settledBy: SettledBy;
      readonly evidence: Evidence;
      readonly receipt: SignedReceipt;
      /** `null` when nothing was kept, or the kept answer was removed by age. */
      readonly result: KeptResult | null;
      /** The upstream accepted the request, but has not finished it (HTTP: 202). */
      readonly accepted: boolean;
      /** The answer broke off before its end. */
      readonly responseTruncated: boolean;
    }
  | {
      readonly state: 'failed';
      readonly at: number;
      readonly settledBy: SettledBy;
      readonly evidence: Evidence;
      readonly result: KeptResult | null;
    }
  | {
      readonly state: 'unknown';
      readonly at: number;
      readonly lease: Lease;
      readonly evidence: Evidence;
      /** When the gateways probe it next, ms; `null`: not any more. Absent: none has done so yet. */
      readonly probeAt?: number | null;
    }
  /** `until`: until this time, the same fingerprint is refused under other keys too. */
  | { readonly state: 'rejected'; readonly at: number; readonly approvalId: string; readonly until: number }
  | {
      readonly state: 'denied';
      readonly at: number;
      readonly decision: DeniedDecision | 'idempotency_conflict';
      readonly reason: Reason;
      readonly mismatches: readonly Mismatch[];
    };

export type EffectState = Life['state'];

export interface EffectActor {
  readonly agentId: string;
  readonly agentOwner: string | null;
  readonly keyId: string;
  readonly keyKind: KeyKind;
  readonly user: string | null;
  readonly keyMadeBy: string | null;
  readonly via: Via;
}

/** The stages that a run may have. */
export const STAGES = [
  'authenticate',
  'validate',
  'identity',
  'permission',
  'policy',
  'admission',
  'approval',
  'state_check',
  'execute',
  'receipt',
  'settle',
] as const;

/** One of them. It shows people where the time went. */
export interface Stage {
  readonly stage: (typeof STAGES)[number];
  readonly status: 'passed' | 'refused' | 'failed' | 'unknown' | 'waiting' | 'skipped';
  /** ms since the epoch, by the store's clock. */
  readonly startedAt: number;
  readonly durationMs: number | null;
  readonly detail: string | null;
}

export interface EffectRecord {
  readonly id: string;
  readonly workspace: string;
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  /** The action of an effect, as it was admitted. */
  readonly action: {
    readonly type: string;
    readonly tool: string;
    readonly toolDigest: string;
    readonly upstream: string;
    readonly kind: 'read' | 'write';
    readonly target: string;
  };
  readonly actor: EffectActor;
  readonly createdAt: number;
  readonly life: Life;
  /** Attempts admitted so far, 0 for none. It is also the number of the latest attempt, and callers see it. */
  readonly attempt: number;
  /** How many of them are known to have sent nothing. These do not count towards the limit. */
  readonly unsent: number;
  /**
   * Part of the key that the upstream gets: `<effect id>.<generation>`. It grows only after an attempt that is known
   * not to have happened.
   */
  readonly generation: number;
  /** When the first attempt of this generation was admitted. */
  readonly firstDispatchAt: number | null;
  /**
   * Whether an earlier attempt of this generation may have happened. Then a later `failed` is recorded as `unknown`.
   */
  readonly mayHaveHappened: boolean;
  /** Evidence contradicted the record. The key takes no more attempts. */
  readonly closed: boolean;
  readonly holds: readonly Hold[];
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  /** While the effect runs: targets whose claims it extends, and pool units that it uses. */
  readonly claims: readonly string[];
  readonly uses: readonly PoolUse[];
  readonly trace: VerdictTrace;
  readonly stages: readonly Stage[];
  readonly metadata: JsonObject | null;
  /** Sealed params and salts (base64url; see `secrets/seals.ts`); `null` once erased. */
  readonly sealed: string | null;
}

/** What stays of a settled effect after its record was removed by age. */
export interface Tombstone
  extends Pick<EffectRecord, 'id' | 'workspace' | 'idempotencyKey' | 'fingerprint' | 'attempt'> {
  readonly agentId: string;
  readonly tool: string;
  readonly target: string;
  readonly at: number;
  readonly outcome:
    | { readonly state: 'committed'; readonly receipt: SignedReceipt | ArchivedReceipt }
    | { readonly state: 'failed' | 'rejected' };
  /** Where the record is; absent: nowhere. */
  readonly archived?: { readonly segment: number; readonly createdAt: number };
}

/** Of a receipt that is in the archive, the store knows only the id. */
export interface ArchivedReceipt {
  readonly id: string;
  readonly jws: null;
}

/** The decision for an effect in its present state, as the first request would have got it. */
export function decisionOf(effect: EffectRecord): Decision {
  switch (effect.life.state) {
    case 'pending_approval':
      return 'pending_approval';
    case 'executing':
      return 'in_progress';
    case 'committed':
      return 'committed';
    case 'failed':
      return 'failed';
    case 'unknown':
      return 'unknown_effect';
    case 'rejected':
      return 'denied_policy';
    case 'denied':
      return effect.life.decision;
  }
}

export interface BudgetRow {
  readonly budget: string;
  readonly unit: string;
  readonly bucket: string;
  /** Id of the row's window: `c:<start>:<end>` for calendar windows, `r:<ms>` for rolling ones. */
  readonly window: string;
  readonly limit: number;
  readonly spent: number;
  readonly held: number;
  /** End of a calendar window; `null` for rolling ones. */
  readonly resetsAt: number | null;
}
