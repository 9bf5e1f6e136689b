import type { BudgetRow, Hold, PoolUse } from '../model/effect.ts';
import type { ClaimRecord, ReservationRecord } from '../model/claim.ts';
import type { DeniedDecision, Reason } from '../model/decision.ts';
import { aboveLimit, exceededLimits, isAmongLimits, isAskedAbout, type Counted } from './beyond-limits.ts';
import type { BudgetChange, BudgetCounter, RateCount, RunningUse, StepView } from './plan.ts';
import type { AdmitRequest } from '../store.ts';
import {
  type BeyondLimit,
  limitName,
  type Obligation,
  type Observed,
  type Permit,
  windowId,
} from '../model/verdict.ts';

/** Most rows of a budget. One more is refused (`too_many_rows`). */
export const MAX_BUDGET_ROWS = 10_000;

type Refused = {
  readonly kind: 'refused';
  readonly decision: DeniedDecision;
  readonly reason: Reason;
  readonly budgets: readonly BudgetRow[];
  readonly retryAfterMs: number | null;
};

/** The obligations hold. This is what admission must write. */
interface Satisfied {
  readonly kind: 'satisfied';
  readonly claims: readonly ClaimRecord[];
  readonly uses: readonly PoolUse[];
  readonly rates: readonly RateCount[];
  readonly holds: readonly Hold[];
  readonly changes: readonly BudgetChange[];
  readonly budgets: readonly BudgetRow[];
  readonly observed: Observed | null;
  /** Limits that approvers let the call go beyond. */
  readonly beyond: readonly BeyondLimit[];
}

/** Which obligations count. A waiting effect holds less, and its existing holds do not count against it. */
export interface ObligationScope extends Counted {
  /** Which budgets get a hold now. */
  readonly hold: 'all' | 'own';
  /** People have agreed that the call goes beyond the limits that the permit asks about. */
  readonly isGranted: boolean;
}

/** Whether a claim keeps others out now. */
export function isClaimActive(claim: ClaimRecord, now: number): boolean {
  return claim.expiresAt > now || claim.extendedUntil > now || claim.runningEffects.length > 0;
}

/** Units of a pool that an agent may take. Its own reservations count in its favour, those of others against it. */
export function freeUnits(
  capacity: number,
  agentId: string,
  reservations: readonly ReservationRecord[],
  uses: readonly RunningUse[],
): number {
  const reserved = new Map<string, number>();
  const used = new Map<string, number>();
  for (const { agentId: holder, units } of reservations) reserved.set(holder, (reserved.get(holder) ?? 0) + units);
  for (const { agentId: holder, units } of uses) used.set(holder, (used.get(holder) ?? 0) + units);
  let taken = used.get(agentId) ?? 0;
  for (const holder of new Set([...reserved.keys(), ...used.keys()])) {
    if (holder !== agentId) taken += Math.max(reserved.get(holder) ?? 0, used.get(holder) ?? 0);
  }
  return capacity - taken;
}

/**
 * Checks the obligations of a permit, in the order of policy.md: claim, reservation, rate, budget. In observe mode, an
 * obligation that would refuse is only recorded. But a claim that another agent really holds still refuses. `exceeds`:
 * the call would go beyond just these limits, and people may be asked about that.
 */
export function satisfyObligations(
  view: StepView,
  request: AdmitRequest,
  permit: Permit,
  scope: ObligationScope,
): Satisfied | Refused | { readonly kind: 'exceeds'; readonly limits: readonly string[] } {
  const observing = permit.mode === 'observe';
  let observed = permit.trace.observed;
  const note = (refusal: Refused, beyond?: 'ask' | 'asked'): void => {
    observed ??= {
      would: beyond === undefined ? refusal.decision : 'pending_approval',
      rule: refusal.reason.rule ?? null,
    };
  };
  let asks = false;
  for (const obligation of permit.obligations) if ('beyond' in obligation) asks = !observing;
  const exceeded = asks ? exceededLimits(view, request, permit, scope) : NOTHING;

  const held = targetHeldByOther(view, request, [request.action.target]);
  if (held !== null) return held;

  const claims = new Map<string, ClaimRecord>();
  const own = view.claimOn(request.workspace, request.action.target);
  if (own !== null && isClaimActive(own, view.now)) claims.set(own.target, extended(own, request.effectId));
  if (request.claimId !== null) {
    const refusal = namedClaim(view, request, request.claimId);
    if (refusal !== null) return refusal;
  }
  for (const obligation of permit.obligations) {
    if (obligation.kind !== 'claim') continue;
    const result = claimObligation(view, request, obligation);
    if (result.kind === 'claim') claims.set(result.claim.target, result.claim);
    else if (observing) note(result);
    else return result;
  }

  const pools = new Map<string, number>();
  for (const obligation of permit.obligations) {
    if (obligation.kind !== 'reserve') continue;
    const refusal = reserveObligation(view, request, obligation, pools.get(obligation.pool) ?? 0);
    if (refusal === null) pools.set(obligation.pool, (pools.get(obligation.pool) ?? 0) + obligation.units);
    else if (observing) note(refusal);
    else return refusal;
  }
  if (request.reservationId !== null) {
    const refusal = namedReservation(view, request, request.reservationId, pools);
    if (refusal !== null) return refusal;
  }

  const rates: RateCount[] = [];
  let beyond: readonly BeyondLimit[] = NOTHING;
  for (const obligation of permit.obligations) {
    if (obligation.kind !== 'rate_limit') continue;
    const { id, bucket, windowMs, limit } = obligation;
    if (scope.counted.some((rate) => rate.id === id && rate.bucket === bucket)) continue;
    if (exceeded.length > 0 && isAmongLimits(exceeded, obligation)) {
      // Until people have agreed it is not counted, so that it is counted once.
      if (!scope.isGranted) continue;
      beyond = [...beyond, { limit: limitName(obligation), by: 1 }];
      rates.push({ id, bucket, windowMs, limit: null });
      continue;
    }
    const isWithin = view.rate(request.workspace, id, bucket, windowMs) < limit;
    rates.push({ id, bucket, windowMs, limit: isWithin ? limit : null });
    if (isWithin) continue;
    const refusal = refuse(
      'denied_budget',
      {
        code: 'rate_limited',
        message: `The limit is ${obligation.limit} calls in ${obligation.windowMs / 1000} s. Wait, then send the same call again.`,
        rule: obligation.rule,
      },
      [],
      Math.min(obligation.windowMs, 60_000),
    );
    if (observing) note(refusal, obligation.beyond);
    else return refusal;
  }

  const holds: Hold[] = [];
  const changes: BudgetChange[] = scope.already.map((hold) => ({ ...hold, limit: null, hold: -hold.amount, spend: 0 }));
  const given = [...changes, ...scope.freed];
  const budgets: BudgetRow[] = [];
  for (const obligation of permit.obligations) {
    if (obligation.kind !== 'budget') continue;
    const isBeyond = exceeded.length > 0 && isAmongLimits(exceeded, obligation);
    const result = budgetObligation(view, request, obligation, given, isBeyond);
    if (result.kind === 'refused') {
      if (!observing) return result;
      note(result, obligation.beyond);
      continue;
    }
    const holdsNow = isBeyond ? scope.isGranted : scope.hold === 'all' || obligation.sharing === 'own';
    budgets.push(holdsNow ? withHeld(result.row, result.hold.amount) : result.row);
    if (!holdsNow) continue;
    holds.push(result.hold);
    const { budget, unit, bucket, window, amount } = result.hold;
    const change = { budget, unit, bucket, window, limit: obligation.limit, hold: amount, spend: 0 };
    changes.push(isBeyond ? { ...change, most: Number.MAX_SAFE_INTEGER } : change);
    if (isBeyond) beyond = [...beyond, { limit: limitName(obligation), by: aboveLimit(result.row, amount) }];
  }
  // Last, so that nobody is asked about a call that is refused all the same.
  if (asks && !isAskedAbout(permit, exceeded, scope.isGranted)) return { kind: 'exceeds', limits: exceeded };
  return {
    kind: 'satisfied',
    claims: [...claims.values()],
    uses: [...pools].map(([pool, units]) => ({ pool, units })),
    rates,
    holds,
    changes,
    budgets,
    observed,
    beyond,
  };
}

const NOTHING: readonly never[] = [];

function withHeld({ budget, unit, bucket, window, limit, spent, held, resetsAt }: BudgetRow, more: number): BudgetRow {
  return { budget, unit, bucket, window, limit, spent, held: held + more, resetsAt };
}

function refuse(
  decision: DeniedDecision,
  reason: Reason,
  budgets: readonly BudgetRow[],
  retryAfterMs: number | null,
): Refused {
  return { kind: 'refused', decision, reason, budgets, retryAfterMs };
}

function extended(claim: ClaimRecord, effectId: string): ClaimRecord {
  return claim.runningEffects.includes(effectId)
    ? claim
    : { ...claim, runningEffects: [...claim.runningEffects, effectId] };
}

function targetHeldByOther(
  view: StepView,
  request: AdmitRequest,
  targets: readonly string[],
  rule?: string,
): Refused | null {
  for (const target of targets) {
    const claim = view.claimOn(request.workspace, target);
    if (claim === null || claim.agentId === request.actor.agentId || !isClaimActive(claim, view.now)) continue;
    const end = Math.max(claim.expiresAt, claim.extendedUntil);
    return refuse(
      'denied_claim',
      {
        code: 'claim_held',
        message: 'Another agent holds a claim on the target. Wait until it is released, then send the same call again.',
        ...(rule === undefined ? {} : { rule }),
      },
      [],
      Math.max(1000, end - view.now),
    );
  }
  return null;
}

function namedClaim(view: StepView, request: AdmitRequest, claimId: string): Refused | null {
  const claim = view.claim(request.workspace, claimId);
  const valid =
    claim !== null &&
    claim.agentId === request.actor.agentId &&
    claim.target === request.action.target &&
    claim.expiresAt > view.now;
  if (valid) return null;
  return refuse(
    'denied_claim',
    {
      code: 'claim_required',
      message: 'The claim named is over, or is not this agent’s claim on this target. Take the claim again.',
    },
    [],
    null,
  );
}

function claimObligation(
  view: StepView,
  request: AdmitRequest,
  obligation: Extract<Obligation, { kind: 'claim' }>,
): { readonly kind: 'claim'; readonly claim: ClaimRecord } | Refused {
  const { target, rule } = obligation;
  const held = targetHeldByOther(view, request, [target], rule);
  if (held !== null) return held;
  const claim = view.claimOn(request.workspace, target);
  if (obligation.hold === 'existing') {
    if (claim !== null && claim.expiresAt > view.now)
      return { kind: 'claim', claim: extended(claim, request.effectId) };
    return refuse(
      'denied_claim',
      {
        code: 'claim_required',
        message: 'The policy asks for a claim on the target, held before the call. Take one, then send the call again.',
        rule,
      },
      [],
      null,
    );
  }
  if (claim !== null && isClaimActive(claim, view.now))
    return { kind: 'claim', claim: extended(claim, request.effectId) };
  return {
    kind: 'claim',
    claim: {
      id: `clm_${request.effectId.slice('eff_'.length)}`,
      workspace: request.workspace,
      target,
      agentId: request.actor.agentId,
      createdAt: view.now,
      expiresAt: view.now,
      runningEffects: [request.effectId],
      extendedUntil: 0,
    },
  };
}

function reserveObligation(
  view: StepView,
  request: AdmitRequest,
  obligation: Extract<Obligation, { kind: 'reserve' }>,
  taken: number,
): Refused | null {
  const { pool, units, capacity, rule } = obligation;
  const uses = view.usesOf(request.workspace, pool).filter((use) => use.effectId !== request.effectId);
  const free = freeUnits(capacity, request.actor.agentId, view.reservationsOf(request.workspace, pool), uses) - taken;
  if (units <= free) return null;
  return refuse(
    'denied_reservation',
    {
      code: 'pool_exhausted',
      message: `The call needs ${units} of ${pool}; ${Math.max(0, free)} of ${capacity} are free. Wait, or reserve ahead.`,
      rule,
    },
    [],
    1000,
  );
}

function namedReservation(
  view: StepView,
  request: AdmitRequest,
  id: string,
  pools: ReadonlyMap<string, number>,
): Refused | null {
  const reservation = view.reservation(request.workspace, id);
  const valid =
    reservation !== null &&
    reservation.agentId === request.actor.agentId &&
    reservation.expiresAt > view.now &&
    pools.has(reservation.pool);
  if (valid) return null;
  return refuse(
    'denied_reservation',
    {
      code: 'reservation_invalid',
      message: 'The reservation named is over, is not this agent’s, or is of a pool that this call does not use.',
    },
    [],
    null,
  );
}

function budgetObligation(
  view: StepView,
  request: AdmitRequest,
  obligation: Extract<Obligation, { kind: 'budget' }>,
  back: readonly BudgetChange[],
  isBeyond: boolean,
): { readonly kind: 'held'; readonly hold: Hold; readonly row: BudgetRow } | Refused {
  const { budget, unit, bucket, limit, amount, rule } = obligation;
  const window = windowId(obligation.window);
  let given = 0;
  for (const one of back)
    if (one.budget === budget && one.bucket === bucket && one.window === window) given -= one.hold;
  const resetsAt = obligation.window.kind === 'calendar' ? obligation.window.end : null;
  const rowOf = ({ spent, held }: BudgetCounter): BudgetRow => ({
    budget,
    unit,
    bucket,
    window,
    limit,
    spent,
    held: held - given,
    resetsAt,
  });
  /** A refusal shows figures, so they have to be the store's. */
  const deny = (
    code: 'amount_invalid' | 'budget_exceeded' | 'too_many_rows',
    passes: 'in time' | 'never',
    explain: (free: number) => string,
  ): Refused => {
    const row = rowOf(view.budgetAsStored(request.workspace, budget, bucket, window));
    const message = explain(Math.max(0, limit - row.spent - row.held));
    const wait = passes === 'never' || resetsAt === null ? null : resetsAt - view.now;
    return refuse('denied_budget', { code, message, rule }, [row], wait);
  };
  if (amount === null) {
    const what = obligation.amountFrom ?? `The amount for budget ${budget}`;
    return deny(
      'amount_invalid',
      'never',
      () => `${what} is absent or not a whole number from 0 to 2^53-1. Budget ${budget} counts it in ${unit}.`,
    );
  }
  const counter = isBeyond
    ? view.budgetAsStored(request.workspace, budget, bucket, window)
    : view.budget(request.workspace, budget, bucket, window);
  if (counter.rows >= MAX_BUDGET_ROWS && counter.spent + counter.held === 0) {
    return deny(
      'too_many_rows',
      'in time',
      () =>
        `Budget ${budget} has ${MAX_BUDGET_ROWS} rows, which is the limit. Ask the owner of the policy to count by fewer values.`,
    );
  }
  const row = rowOf(counter);
  const most = isBeyond ? Number.MAX_SAFE_INTEGER : limit;
  if (amount > most - row.spent - row.held) {
    return deny('budget_exceeded', amount > limit ? 'never' : 'in time', (free) =>
      obligation.sharing === 'own'
        ? `The call needs ${amount} ${unit}; ${free} of ${limit} are left in budget ${budget}.`
        : `Budget ${budget} does not have ${amount} ${unit} left.`,
    );
  }
  return { kind: 'held', hold: { budget, unit, bucket, window, amount }, row };
}
