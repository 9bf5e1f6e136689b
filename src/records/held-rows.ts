import type { ClaimRecord } from '../effects/model/claim.ts';
import type { ReservationRecord } from '../effects/model/reservation.ts';
import type { RunningUse } from '../effects/steps/plan.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, stock, textKind } from './kind.ts';

/** Claims by target, ordered by when their rows may be removed. */
export const CLAIMS = 'claims';
/** A claim that running effects hold is not removed. */
const NEVER = Number.MAX_SAFE_INTEGER;

export const claimRows = stock(jsonKind<ClaimRecord>('claim', (claim) => [{ list: CLAIMS, at: activeUntil(claim) }]));
/** The target of a claim, by the claim's id. */
const targetRows = stock(textKind('claim_target'));
/** The claims of an agent, or those that a key took: for each target, until when the claim is active. */
type Ends = Readonly<Record<string, number>>;
const claimsOfAgent = stock(jsonKind<Ends>('claims_of_agent', () => []));
const claimsOfKey = stock(jsonKind<Ends>('claims_of_key', () => []));

function activeUntil({ runningEffects, expiresAt, extendedUntil }: ClaimRecord): number {
  return runningEffects.length > 0 ? NEVER : Math.max(expiresAt, extendedUntil);
}

export function claimOn(draft: Draft, target: string): ClaimRecord | null {
  return claimRows.get(draft, target, MOSTLY_ABSENT);
}

export function claimById(draft: Draft, id: string): ClaimRecord | null {
  const target = targetRows.get(draft, id);
  const claim = target === null ? null : claimOn(draft, target);
  return claim?.id === id ? claim : null;
}

export function activeClaimsOf(draft: Draft, of: 'agent' | 'key', id: string): number {
  const ends = (of === 'agent' ? claimsOfAgent : claimsOfKey).get(draft, id, MOSTLY_ABSENT) ?? {};
  return Object.values(ends).filter((end) => end > draft.now).length;
}

/** The targets of an agent's claims that running effects hold. */
export function runningClaimsOf(draft: Draft, agentId: string): readonly string[] {
  const ends = Object.entries(claimsOfAgent.get(draft, agentId, MOSTLY_ABSENT) ?? {});
  return ends.flatMap(([target, end]) => (end === NEVER ? [target] : []));
}

/** Puts or removes the claim on a target, and updates all rows that refer to it. */
export function putClaim(draft: Draft, target: string, claim: ClaimRecord | null): void {
  const there = claimOn(draft, target);
  if (there !== null && there.id !== claim?.id) {
    targetRows.get(draft, there.id);
    targetRows.put(draft, there.id, null);
  }
  for (const [rows, was, is] of [
    [claimsOfAgent, there?.agentId, claim?.agentId],
    [claimsOfKey, there?.keyId, claim?.keyId],
  ] as const) {
    if (was !== undefined && was !== is) setEnd(draft, rows, was, target, null);
    if (is !== undefined) setEnd(draft, rows, is, target, claim === null ? null : activeUntil(claim));
  }
  claimRows.put(draft, target, claim);
  if (claim !== null && there?.id !== claim.id) targetRows.put(draft, claim.id, target);
}

/** Leaves out what has ended, so that the row does not grow beyond the active claims. */
function setEnd(draft: Draft, rows: typeof claimsOfAgent, id: string, target: string, end: number | null): void {
  const there = rows.get(draft, id, MOSTLY_ABSENT) ?? {};
  const left = Object.entries(there).filter(([other, until]) => other !== target && until > draft.now);
  const next = end === null ? left : [...left, [target, end] as const];
  rows.put(draft, id, next.length === 0 ? null : Object.fromEntries(next));
}

/** What is taken from a pool: reserved and in use. */
interface PoolState {
  readonly reservations: readonly ReservationRecord[];
  readonly uses: readonly RunningUse[];
}

/** Pools from which something is taken, by name. */
export const POOLS = 'pools';
/** Reservations, ordered by when they end. */
export const RESERVATIONS = 'reservations';

export const poolRows = stock(jsonKind<PoolState>('pool', () => [{ list: POOLS, at: 0 }]));
export const reservationRows = stock(
  jsonKind<ReservationRecord>('reservation', ({ expiresAt }) => [{ list: RESERVATIONS, at: expiresAt }]),
);
const reservationsOfKey = stock(jsonKind<Ends>('reservations_of_key', () => []));

const EMPTY: PoolState = { reservations: [], uses: [] };

export function poolState(draft: Draft, pool: string): PoolState {
  const { reservations, uses } = poolRows.get(draft, pool, MOSTLY_ABSENT) ?? EMPTY;
  return {
    reservations: reservations.filter(({ expiresAt }) => expiresAt > draft.now),
    uses: uses.filter(({ until }) => until === null || until > draft.now),
  };
}

function putPool(draft: Draft, pool: string, state: PoolState): void {
  poolRows.put(draft, pool, state.reservations.length + state.uses.length === 0 ? null : state);
}

export function activeReservationsOfKey(draft: Draft, keyId: string): number {
  const ends = reservationsOfKey.get(draft, keyId, MOSTLY_ABSENT) ?? {};
  return Object.values(ends).filter((end) => end > draft.now).length;
}

export function putReservation(draft: Draft, reservation: ReservationRecord): void {
  const { id, pool, keyId, expiresAt } = reservation;
  const state = poolState(draft, pool);
  putPool(draft, pool, { ...state, reservations: [...state.reservations.filter((it) => it.id !== id), reservation] });
  reservationRows.get(draft, id, MOSTLY_ABSENT);
  reservationRows.put(draft, id, reservation);
  if (keyId !== undefined) setEnd(draft, reservationsOfKey, keyId, id, expiresAt);
}

export function removeReservation(draft: Draft, id: string): void {
  const reservation = reservationRows.get(draft, id);
  if (reservation === null) return;
  const state = poolState(draft, reservation.pool);
  putPool(draft, reservation.pool, { ...state, reservations: state.reservations.filter((it) => it.id !== id) });
  reservationRows.put(draft, id, null);
  if (reservation.keyId !== undefined) setEnd(draft, reservationsOfKey, reservation.keyId, id, null);
}

/** Replaces what an effect uses of pools. */
export function putUses(
  draft: Draft,
  effectId: string,
  poolsBefore: readonly string[],
  uses: readonly RunningUse[],
): void {
  for (const pool of new Set([...poolsBefore, ...uses.map((use) => use.pool)])) {
    const state = poolState(draft, pool);
    const others = state.uses.filter((use) => use.effectId !== effectId);
    putPool(draft, pool, { ...state, uses: [...others, ...uses.filter((use) => use.pool === pool)] });
  }
}
