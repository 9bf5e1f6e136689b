import type { ClaimRecord, ReservationRecord } from '../model/claim.ts';
import type { LedgerActor, LedgerDraft } from '../model/ledger.ts';
import { freeUnits, isClaimActive } from './obligations.ts';
import type { Plan, StepView } from './plan.ts';
import type { AskedOf, AnswerOf } from '../store.ts';

/** At most this many claims that one agent asked for at a time. Claims that calls take for themselves do not count. */
export const MAX_CLAIMS = 20;
/** And of one key. Without this limit, a key that acts for many agents could take more by naming more agents. */
export const MAX_CLAIMS_OF_KEY = 100;
/** At most this many reservations of one key at a time. */
export const MAX_RESERVATIONS_OF_KEY = 100;

/** Takes an exclusive right on a target. A holder that asks again gets its own claim, prolonged. */
export function takeClaimStep(view: StepView, request: AskedOf<'takeClaim'>): Plan<AnswerOf<'takeClaim'>> {
  const { workspace, target, agentId, keyId } = request;
  const there = view.claimOn(workspace, target);
  const active = there !== null && isClaimActive(there, view.now);
  if (active && there.agentId !== agentId) return { reply: { kind: 'held', claim: there } };
  const timed = active && there.expiresAt > view.now;
  if (!timed && view.claimCount(workspace, agentId) >= MAX_CLAIMS)
    return { reply: { kind: 'too_many', of: 'agent', limit: MAX_CLAIMS } };
  if (!(timed && there.keyId === keyId) && view.claimsOfKey(workspace, keyId) >= MAX_CLAIMS_OF_KEY)
    return { reply: { kind: 'too_many', of: 'key', limit: MAX_CLAIMS_OF_KEY } };
  const claim: ClaimRecord = {
    id: timed ? there.id : request.id,
    workspace,
    target,
    agentId,
    createdAt: timed ? there.createdAt : view.now,
    expiresAt: Math.max(timed ? there.expiresAt : 0, view.now + request.ttlMs),
    runningEffects: active ? there.runningEffects : [],
    extendedUntil: active ? there.extendedUntil : 0,
    keyId,
  };
  return { reply: { kind: 'made', claim }, claims: [claim], events: [claimEvent('claim.taken', claim, request.actor)] };
}

/** Sets the end of a claim to `ttlMs` from now. */
export function renewClaimStep(
  view: StepView,
  request: { readonly workspace: string; readonly id: string; readonly ttlMs: number; readonly actor: LedgerActor },
): Plan<ClaimRecord | null> {
  const there = view.claim(request.workspace, request.id);
  if (there === null || there.expiresAt <= view.now) return { reply: null };
  const claim: ClaimRecord = { ...there, expiresAt: view.now + request.ttlMs };
  return { reply: claim, claims: [claim], events: [claimEvent('claim.renewed', claim, request.actor)] };
}

/** Ends a claim. Effects that run under it keep others out until they are settled. */
export function releaseClaimStep(
  view: StepView,
  request: { readonly workspace: string; readonly id: string; readonly actor: LedgerActor },
): Plan<ClaimRecord | null> {
  const there = view.claim(request.workspace, request.id);
  if (there === null || there.expiresAt <= view.now) return { reply: null };
  const claim: ClaimRecord = { ...there, expiresAt: view.now };
  return {
    reply: claim,
    ...(isClaimActive(claim, view.now) ? { claims: [claim] } : { claimsGone: [claim.target] }),
    events: [claimEvent('claim.released', claim, request.actor)],
  };
}

export function makeReservationStep(
  view: StepView,
  request: AskedOf<'makeReservation'>,
): Plan<AnswerOf<'makeReservation'>> {
  const { workspace, pool, agentId, keyId, units } = request;
  if (view.reservationsOfKey(workspace, keyId) >= MAX_RESERVATIONS_OF_KEY)
    return { reply: { kind: 'too_many', limit: MAX_RESERVATIONS_OF_KEY } };
  const reservations = view.reservationsOf(workspace, pool);
  const uses = view.usesOf(workspace, pool);
  const own = reservations.reduce(
    (sum, reservation) => (reservation.agentId === agentId ? sum + reservation.units : sum),
    0,
  );
  const used = uses.reduce((sum, use) => (use.agentId === agentId ? sum + use.units : sum), 0);
  const free = freeUnits(request.capacity, agentId, reservations, uses) + used - own;
  if (units > free) return { reply: { kind: 'full', free: Math.max(0, free) } };
  const reservation: ReservationRecord = {
    id: request.id,
    workspace,
    pool,
    agentId,
    units,
    createdAt: view.now,
    expiresAt: view.now + request.ttlMs,
    keyId,
  };
  return {
    reply: { kind: 'made', reservation },
    reservation,
    events: [
      {
        kind: 'reservation.made',
        effectId: null,
        actor: request.actor,
        data: { reservation_id: reservation.id, pool, units, agent_id: agentId },
      },
    ],
  };
}

/** Gives reserved units back. Effects that use them continue. */
export function releaseReservationStep(
  view: StepView,
  request: { readonly workspace: string; readonly id: string; readonly actor: LedgerActor },
): Plan<ReservationRecord | null> {
  const reservation = view.reservation(request.workspace, request.id);
  if (reservation === null || reservation.expiresAt <= view.now) return { reply: null };
  return {
    reply: reservation,
    reservationGone: reservation.id,
    events: [
      {
        kind: 'reservation.released',
        effectId: null,
        actor: request.actor,
        data: { reservation_id: reservation.id, pool: reservation.pool, units: reservation.units },
      },
    ],
  };
}

function claimEvent(kind: LedgerDraft['kind'], claim: ClaimRecord, actor: LedgerActor): LedgerDraft {
  return {
    kind,
    effectId: null,
    actor,
    data: {
      claim_id: claim.id,
      target: claim.target,
      agent_id: claim.agentId,
      expires_at: new Date(claim.expiresAt).toISOString(),
    },
  };
}
