import type { SeenEntity } from '../model/entity.ts';
import type { AllowanceRecord } from '../model/allowance.ts';
import type { ApprovalRecord } from '../model/approval.ts';
import type { ClaimRecord, ReservationRecord } from '../model/claim.ts';
import type { EffectRecord, Tombstone, BudgetRow } from '../model/effect.ts';
import type { LedgerDraft } from '../model/ledger.ts';
import type { SeenVersions } from '../store.ts';

/** What a key is bound to. */
export type Binding =
  | { readonly kind: 'effect'; readonly effect: EffectRecord }
  | { readonly kind: 'tombstone'; readonly tombstone: Tombstone };

/** Units in use by a running effect, or by an unknown one before its quiet time is over. */
export interface RunningUse {
  readonly effectId: string;
  readonly agentId: string;
  readonly pool: string;
  readonly units: number;
  /** `null` while the effect runs. For an unknown effect: the time until which it keeps the units. */
  readonly until: number | null;
}

/**
 * What a step may read within its transaction. The store provides it. The steps (`admission.ts`, `settlement.ts`, …)
 * are pure functions from a view and a request to a {@link Plan}, so every store that can run TypeScript decides in the
 * same way.
 */
export interface StepView {
  /** The store's time for this step, ms since the epoch. It never goes back. */
  readonly now: number;
  readonly epoch: number;
  /** `max_freeze` of the store (effects.md, A1), ms. */
  readonly maxFreezeMs: number;
  /** The name that leases of this gateway have in the store; `null`: the owner that the request names. */
  readonly leaseOwner: string | null;
  versions(workspace: string): SeenVersions;
  /** The `seq` of the first event in this step's plan. */
  nextSeq(workspace: string): number;
  binding(workspace: string, idempotencyKey: string): Binding | null;
  effect(workspace: string, id: string): EffectRecord | null;
  /** A rejection of this fingerprint whose `until` is after `now`. */
  rejection(workspace: string, fingerprint: string): { readonly effectId: string; readonly until: number } | null;
  /** The version that an entity of the company brain has now; `ABSENT_ENTITY` where there is none. */
  entityVersion(workspace: string, seen: SeenEntity): number;
  approval(workspace: string, id: string): ApprovalRecord | null;
  pendingApprovals(workspace: string, agentId: string): number;
  allowance(workspace: string, id: string): AllowanceRecord | null;
  /** The one that was given last for calls of this likeness, also where it is over. */
  allowanceAlike(workspace: string, likeness: string): AllowanceRecord | null;
  claim(workspace: string, id: string): ClaimRecord | null;
  /** The claim on a target, whether active or not. */
  claimOn(workspace: string, target: string): ClaimRecord | null;
  /**
   * Number of claims of an agent that were asked for and whose time runs; 0 where that is not known. If it is not, the
   * store judges: it refuses what would exceed the cap.
   */
  claimCount(workspace: string, agentId: string): number;
  /** The same for the claims that a key took. */
  claimsOfKey(workspace: string, keyId: string): number;
  reservation(workspace: string, id: string): ReservationRecord | null;
  /** Reservations of a pool that have not expired. */
  reservationsOf(workspace: string, pool: string): readonly ReservationRecord[];
  /** The same for the reservations of a key, in all pools. */
  reservationsOfKey(workspace: string, keyId: string): number;
  /** Uses of a pool that have not ended. */
  usesOf(workspace: string, pool: string): readonly RunningUse[];
  /**
   * Figures of a budget row. For a rolling window, `spent` is what counts at `now`. Zeroes where there is no row, or where
   * they are not known: then the store judges, because the change carries the limit. Not to be shown to anybody.
   */
  budget(workspace: string, budget: string, bucket: string, window: string): BudgetCounter;
  /** The same as the store has them, for a refusal that quotes them. If they are not known, the step has to run again. */
  budgetAsStored(workspace: string, budget: string, bucket: string, window: string): BudgetCounter;
  /** Attempts counted in the last `windowMs`; 0 where that is not known, as for budgets. */
  rate(workspace: string, id: string, bucket: string, windowMs: number): number;
  /** The same as the store has them. */
  rateAsStored(workspace: string, id: string, bucket: string, windowMs: number): number;
}

/** Units of one budget row, and how many rows the budget has. */
export interface BudgetCounter {
  readonly spent: number;
  readonly held: number;
  readonly rows: number;
}

/** A change of one budget row. `spend` gets the time `now`. */
export interface BudgetChange extends Pick<BudgetRow, 'budget' | 'unit' | 'bucket' | 'window'> {
  /** The limit in force, for readers; `null` keeps the one on record. */
  readonly limit: number | null;
  readonly hold: number;
  readonly spend: number;
  /** What the figures stay within, where people let a call go beyond the limit. Absent: the limit. */
  readonly most?: number;
}

/** Counts one more attempt for a rate limit. */
export interface RateCount {
  readonly id: string;
  readonly bucket: string;
  readonly windowMs: number;
  /** Most attempts within the window, with this one; `null` where the limit is only observed. */
  readonly limit: number | null;
}

/**
 * One effect to write. `bind`: the idempotency key now belongs to it. `release`: the key is free again (denials bind no
 * key). `keep`: no change.
 */
export interface EffectWrite {
  readonly record: EffectRecord;
  readonly binding: 'bind' | 'release' | 'keep';
}

/** What a step writes, all or nothing, and what it answers. An absent member writes nothing. */
export interface Plan<Reply> {
  readonly reply: Reply;
  readonly effects?: readonly EffectWrite[];
  /** A key besides its own that now belongs to an effect: the derived key of its generation. */
  readonly bindAlso?: { readonly key: string; readonly effectId: string };
  readonly approvals?: readonly ApprovalRecord[];
  /** One that is ended comes before the one that takes its place. */
  readonly allowances?: readonly AllowanceRecord[];
  readonly budgets?: readonly BudgetChange[];
  readonly rates?: readonly RateCount[];
  readonly claims?: readonly ClaimRecord[];
  readonly claimsGone?: readonly string[];
  readonly reservation?: ReservationRecord;
  readonly reservationGone?: string;
  /** Id of the effect whose uses are removed, before `uses` are written. */
  readonly usesGone?: string;
  readonly uses?: readonly RunningUse[];
  readonly rejection?: { readonly fingerprint: string; readonly effectId: string; readonly until: number };
  /** Written together, in order. */
  readonly events?: readonly LedgerDraft[];
  /** The plan is not valid from this time on (ms), because a budget's window ends. Absent: it stays valid. */
  readonly validUntil?: number;
  /**
   * If set, plans with the same word are limited: beyond 10 a second, only one counted event a second is written. The
   * word contains the key and the code. Only plans that change no state have it.
   */
  readonly throttle?: string;
}
