import type { Mismatch, Via } from './action-call.ts';
import type { DeniedDecision, Reason } from './decision.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import type { KeyKind } from './principal.ts';
import type { VerdictTrace } from './verdict.ts';

/** Fencing token of one attempt: compared on every settlement, so that only the owner of the attempt can settle it. */
export interface Fence {
  /** Epoch of the store; grows when the store may have lost acknowledged writes. */
  readonly epoch: number;
  /** Number of the attempt within the effect, beginning with 1. */
  readonly n: number;
  /** Made by the owner for this one admission. */
  readonly nonce: string;
}

/** Ownership of a running attempt. All times are ms since the epoch by the store's clock. */
export interface Lease {
  readonly fence: Fence;
  /** Boot id of the gateway process that owns the attempt. */
  readonly owner: string;
  readonly admittedAt: number;
  /** Past this the owner sends nothing. */
  readonly dispatchBy: number;
  /** Past this anyone may declare the outcome unknown, nobody may send. */
  readonly leaseEnd: number;
  /** Before this `not_happened` is refused: something may still be under way. */
  readonly quiesceUntil: number;
}

/** Units set aside in one budget row, and the window they were set aside in. */
export interface Hold {
  readonly budget: string;
  readonly unit: string;
  readonly bucket: string;
  /** Id of the row's window: `c:<start>:<end>` for calendar windows, `r:<ms>` for rolling ones. */
  readonly window: string;
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

/** What was seen of the upstream: the evidence on which an outcome rests. */
export interface Evidence {
  /** Stable code: `http_status`, `not_dispatched`, `connect_failed`, `timeout`, `reset`, `malformed`, `lease_over`, `declared`, … */
  readonly code: string;
  readonly message: string;
  /** The number that the upstream's protocol gives its answer (the status of HTTP); `null` where none came, or it gives none. */
  readonly status: number | null;
  readonly startedAt: number | null;
  readonly endedAt: number | null;
  /** SHA-256 (base64url) of method, path with query, and body as they were sent; absent where nothing was, or nobody saw it. */
  readonly sent?: string;
}

/**
 * The part of an upstream's answer that is kept for duplicates (up to `limits.response_kept`), by the kind of the
 * upstream. It is stored as it stands here: what names no kind is HTTP's, and every other kind names itself.
 */
export type KeptResult = KeptHttpResult;

export interface KeptHttpResult {
  readonly kind?: 'http';
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body:
    | { readonly kind: 'json'; readonly value: Json }
    | { readonly kind: 'text'; readonly value: string }
    | { readonly kind: 'base64'; readonly value: string }
    /** At rest: headers and body, sealed. Where it is seen elsewhere it was not opened. */
    | { readonly kind: 'sealed'; readonly value: string };
  /** The body was longer than what is kept. */
  readonly truncated: boolean;
}

/** A signed receipt: the bytes that were signed, never derived again. */
export interface SignedReceipt {
  readonly id: string;
  /** Compact JWS. */
  readonly jws: string;
}

/** The state of an effect, with all that only this state has. The transitions are in `lifecycle.ts`. */
export type Life =
  | { readonly state: 'pending_approval'; readonly approvalId: string }
  | { readonly state: 'executing'; readonly lease: Lease }
  | {
      readonly state: 'committed';
      readonly at: number;
      readonly settledBy: SettledBy;
      readonly evidence: Evidence;
      readonly receipt: SignedReceipt;
      /** `null` when nothing was kept, or it has expired. */
      readonly result: KeptResult | null;
      /** The upstream answered 202: taken on, not finished. */
      readonly accepted: boolean;
      /** The answer was cut on the way. */
      readonly responseTruncated: boolean;
    }
  | {
      readonly state: 'failed';
      readonly at: number;
      readonly settledBy: SettledBy;
      readonly evidence: Evidence;
      readonly result: KeptResult | null;
    }
  | { readonly state: 'unknown'; readonly at: number; readonly lease: Lease; readonly evidence: Evidence }
  /** `until`: the fingerprint is refused as well until then. */
  | { readonly state: 'rejected'; readonly at: number; readonly approvalId: string; readonly until: number }
  | {
      readonly state: 'denied';
      readonly at: number;
      readonly decision: DeniedDecision | 'idempotency_conflict';
      readonly reason: Reason;
      readonly mismatches: readonly Mismatch[];
    };

export type EffectState = Life['state'];

/** What the effect does, as it was admitted. */
export interface EffectAction {
  readonly type: string;
  readonly tool: string;
  readonly toolDigest: string;
  readonly upstream: string;
  readonly kind: 'read' | 'write';
  readonly target: string;
}

/** Who asked for it. */
export interface EffectActor {
  readonly agentId: string;
  readonly agentOwner: string | null;
  readonly keyId: string;
  readonly keyKind: KeyKind;
  readonly user: string | null;
  readonly keyMadeBy: string | null;
  readonly via: Via;
}

/** One step of the run, for people: what the time went into. */
export interface Stage {
  readonly stage:
    | 'authenticate'
    | 'validate'
    | 'identity'
    | 'permission'
    | 'policy'
    | 'admission'
    | 'approval'
    | 'state_check'
    | 'execute'
    | 'receipt'
    | 'settle';
  readonly status: 'passed' | 'refused' | 'failed' | 'unknown' | 'waiting' | 'skipped';
  /** ms since the epoch, store time. */
  readonly startedAt: number;
  readonly durationMs: number | null;
  readonly detail: string | null;
}

/** The record of one action. */
export interface EffectRecord {
  readonly id: string;
  readonly workspace: string;
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly action: EffectAction;
  readonly actor: EffectActor;
  readonly createdAt: number;
  readonly life: Life;
  /** Attempts admitted so far; 0 while none was. The number of the latest one, also to callers. */
  readonly attempt: number;
  /** How many of them are known to have sent nothing: these do not count towards the limit. */
  readonly unsent: number;
  /** The upstream's key is `<effect id>.<generation>`; grows only after an attempt that is known not to have happened. */
  readonly generation: number;
  /** When the first attempt of this generation was admitted. */
  readonly firstDispatchAt: number | null;
  /** An earlier attempt of this generation may have happened: a later `failed` is `unknown` all the same. */
  readonly mayHaveHappened: boolean;
  /** A contradiction was seen: no further attempts under this key. */
  readonly closed: boolean;
  readonly holds: readonly Hold[];
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  /** Targets whose claims this effect extends, and pool units it uses, while it runs. */
  readonly claims: readonly string[];
  readonly uses: readonly PoolUse[];
  readonly trace: VerdictTrace;
  readonly stages: readonly Stage[];
  readonly metadata: JsonObject | null;
  /** Sealed params and salts (AES-256-GCM, base64url); `null` once erased. */
  readonly sealed: string | null;
}

/** What remains of a settled effect when its record's retention is over. */
export interface Tombstone {
  readonly id: string;
  readonly workspace: string;
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly agentId: string;
  readonly tool: string;
  readonly target: string;
  readonly attempt: number;
  readonly at: number;
  readonly outcome:
    | { readonly state: 'committed'; readonly receipt: SignedReceipt }
    | { readonly state: 'failed' | 'rejected' };
}
