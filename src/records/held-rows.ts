import type { ClaimRecord, ReservationRecord } from '../effects/model/claim.ts';
import { MAX_CLAIMS, MAX_CLAIMS_OF_KEY, MAX_RESERVATIONS_OF_KEY } from '../effects/steps/claims-and-reservations.ts';
import type { RunningUse } from '../effects/steps/plan.ts';
import { type Cap, count, countNoMore } from './counted.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, repository, textKind } from './kind.ts';

/** Claims by target, ordered by when their rows may be removed. */
export const CLAIMS = 'claims';
/** A claim that running effects hold is not removed. */
const NEVER = Number.MAX_SAFE_INTEGER;

export const claimRows = repository(
  jsonKind<ClaimRecord>('claim', (claim) => [{ list: CLAIMS, at: activeUntil(claim) }]),
);
/** The target of a claim, by the claim's id. */
const targetRows = repository(textKind('claim_target'));
/** When the row of a claim may be removed, ms. */
export function activeUntil({ runningEffects, expiresAt, extendedUntil }: ClaimRecord): number {
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

/** Claims of an agent that were asked for and whose time runs. Those that a call takes for itself are not among them. */
export const claimsOfAgent = (agentId: string): Cap => ({ name: `claims_of_agent ${agentId}`, limit: MAX_CLAIMS });
/** The same, by the key that took them. */
export const claimsOfKey = (keyId: string): Cap => ({ name: `claims_of_key ${keyId}`, limit: MAX_CLAIMS_OF_KEY });
export const reservationsOfKey = (keyId: string): Cap => ({
  name: `reservations_of_key ${keyId}`,
  limit: MAX_RESERVATIONS_OF_KEY,
});

export const capsOfClaim = ({ agentId, keyId }: ClaimRecord): readonly Cap[] =>
  keyId === undefined ? [claimsOfAgent(agentId)] : [claimsOfAgent(agentId), claimsOfKey(keyId)];
export const capsOfReservation = ({ keyId }: ReservationRecord): readonly Cap[] => [reservationsOfKey(keyId)];

/** Under these names claims and reservations count toward caps. */
export const countedClaim = (target: string): string => `claim ${target}`;
export const countedReservation = (id: string): string => `reservation ${id}`;

/** Puts or removes the claim on a target, and updates all rows that refer to it. */
export function putClaim(draft: Draft, target: string, claim: ClaimRecord | null): void {
  const there = claimOn(draft, target);
  countClaim(draft, target, there, claim);
  if (there !== null && there.id !== claim?.id) {
    targetRows.get(draft, there.id);
    targetRows.put(draft, there.id, null);
  }
  claimRows.put(draft, target, claim);
  if (claim !== null && there?.id !== claim.id) targetRows.put(draft, claim.id, target);
}

/** Claims that calls take, and calls under a claim, change nothing here: they share no row and no counter. */
function countClaim(draft: Draft, target: string, there: ClaimRecord | null, claim: ClaimRecord | null): void {
  const was = there !== null && there.expiresAt > draft.now ? there : null;
  const is = claim !== null && claim.expiresAt > draft.now ? claim : null;
  if (was?.expiresAt === is?.expiresAt && was?.agentId === is?.agentId && was?.keyId === is?.keyId) return;
  if (is === null) countNoMore(draft, countedClaim(target));
  else {
    // One that is over may not have been given back yet.
    const hint = was === null ? MOSTLY_ABSENT : undefined;
    count(draft, countedClaim(target), capsOfClaim(is), is.expiresAt, hint);
  }
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

export const poolRows = repository(jsonKind<PoolState>('pool', () => [{ list: POOLS, at: 0 }]));
export const reservationRows = repository(
  jsonKind<ReservationRecord>('reservation', ({ expiresAt }) => [{ list: RESERVATIONS, at: expiresAt }]),
);
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

export function putReservation(draft: Draft, reservation: ReservationRecord): void {
  const { id, pool, expiresAt } = reservation;
  count(draft, countedReservation(id), capsOfReservation(reservation), expiresAt, MOSTLY_ABSENT);
  const state = poolState(draft, pool);
  putPool(draft, pool, { ...state, reservations: [...state.reservations.filter((it) => it.id !== id), reservation] });
  reservationRows.get(draft, id, MOSTLY_ABSENT);
  reservationRows.put(draft, id, reservation);
}

export function removeReservation(draft: Draft, id: string): void {
  const reservation = reservationRows.get(draft, id);
  if (reservation === null) return;
  const state = poolState(draft, reservation.pool);
  putPool(draft, reservation.pool, { ...state, reservations: state.reservations.filter((it) => it.id !== id) });
  reservationRows.put(draft, id, null);
  countNoMore(draft, countedReservation(id));
}

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
