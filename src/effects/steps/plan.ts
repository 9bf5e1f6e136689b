import type { ApprovalRecord } from '../model/approval.ts';
import type { ClaimRecord } from '../model/claim.ts';
import type { ReservationRecord } from '../model/reservation.ts';
import type { EffectRecord, Tombstone } from '../model/effect.ts';
import type { LedgerDraft } from '../model/ledger.ts';
import type { SeenVersions } from '../store.ts';

/** What a key is bound to. */
export type Binding =
  | { readonly kind: 'effect'; readonly effect: EffectRecord }
  | { readonly kind: 'tombstone'; readonly tombstone: Tombstone };

/** Units in use by a running (or unknown and not yet quiet) effect. */
export interface RunningUse {
  readonly effectId: string;
  readonly agentId: string;
  readonly pool: string;
  readonly units: number;
  /** `null` while the effect runs; then the time until which an unknown effect keeps the units. */
  readonly until: number | null;
}

/**
 * What a step may read, within its transaction. A store gives it; the steps (`admission.ts`, `settlement.ts`, …) are
 * pure functions from a view and a request to a {@link Plan}, so that every store that can run TypeScript decides alike.
 */
export interface StepView {
  /** The store's time for this step, ms since the epoch; never goes back. */
  readonly now: number;
  readonly epoch: number;
  /** `max_freeze` of the store (effects.md, A1), ms. */
  readonly maxFreezeMs: number;
  versions(workspace: string): SeenVersions;
  /** The `seq` that the first event of this step's plan will get. */
  nextSeq(workspace: string): number;
  binding(workspace: string, idempotencyKey: string): Binding | null;
  effect(workspace: string, id: string): EffectRecord | null;
  /** A rejection of this fingerprint whose `until` is after `now`. */
  rejection(workspace: string, fingerprint: string): { readonly effectId: string; readonly until: number } | null;
  approval(workspace: string, id: string): ApprovalRecord | null;
  pendingApprovals(workspace: string, agentId: string): number;
  claim(workspace: string, id: string): ClaimRecord | null;
  /** The claim row of a target, active or not. */
  claimOn(workspace: string, target: string): ClaimRecord | null;
  /** Active claims of an agent. */
  claimCount(workspace: string, agentId: string): number;
  /** Active claims that a key took. */
  claimsOfKey(workspace: string, keyId: string): number;
  reservation(workspace: string, id: string): ReservationRecord | null;
  /** Reservations of a pool whose time is not over. */
  reservationsOf(workspace: string, pool: string): readonly ReservationRecord[];
  /** Reservations that a key made and whose time is not over, of all pools. */
  reservationsOfKey(workspace: string, keyId: string): number;
  /** Uses of a pool that are not over. */
  usesOf(workspace: string, pool: string): readonly RunningUse[];
  /** Figures of a budget row; for a rolling window, what is spent within it at `now`. Zeroes where there is no row. */
  budget(
    workspace: string,
    budget: string,
    bucket: string,
    window: string,
  ): { readonly spent: number; readonly held: number; readonly rows: number };
  /** Attempts counted within the last `windowMs`. */
  rate(workspace: string, id: string, bucket: string, windowMs: number): number;
}

/** A change of one budget row. `spend` is dated `now`. */
export interface BudgetChange {
  readonly budget: string;
  readonly unit: string;
  readonly bucket: string;
  readonly window: string;
  /** Limit in force, for readers; `null` leaves the one on record. */
  readonly limit: number | null;
  readonly hold: number;
  readonly spend: number;
}

/** One more attempt of a rate limit. */
export interface RateCount {
  readonly id: string;
  readonly bucket: string;
  readonly windowMs: number;
  /** Attempts within the window, this one included, at most; `null` where more are only observed. */
  readonly limit: number | null;
}

/**
 * One effect to put. `bind`: its key now belongs to it; `release`: its key is free again (denials bind nothing);
 * `keep`: as it is.
 */
export interface EffectWrite {
  readonly record: EffectRecord;
  readonly binding: 'bind' | 'release' | 'keep';
}

/** What a step writes, all or nothing, and what it answers. Absent members write nothing. */
export interface Plan<Reply> {
  readonly reply: Reply;
  readonly effects?: readonly EffectWrite[];
  readonly approvals?: readonly ApprovalRecord[];
  readonly budgets?: readonly BudgetChange[];
  readonly rates?: readonly RateCount[];
  /** Rows to put, by target. */
  readonly claims?: readonly ClaimRecord[];
  /** Targets whose claim row goes. */
  readonly claimsGone?: readonly string[];
  readonly reservation?: ReservationRecord;
  /** Id of a reservation that goes. */
  readonly reservationGone?: string;
  /** Id of the effect whose uses go; they go before `uses` are put. */
  readonly usesGone?: string;
  readonly uses?: readonly RunningUse[];
  readonly rejection?: { readonly fingerprint: string; readonly effectId: string; readonly until: number };
  /** Written together, in order. */
  readonly events?: readonly LedgerDraft[];
  /** What was decided does not hold from then on, ms: a budget's window is over. Absent: it holds. */
  readonly validUntil?: number;
  /**
   * Where set: beyond 10 such plans a second with the same word, nothing is written but one counted event a second.
   * The word is made of key and code; only plans that change no state carry it.
   */
  readonly throttle?: string;
}
