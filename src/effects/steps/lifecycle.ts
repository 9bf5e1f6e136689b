import type { EffectRecord, EffectState, Evidence, Fence, Lease, Life, SettledBy } from '../model/effect.ts';
import type { DeniedDecision, Reason } from '../model/decision.ts';
import type { SettleOutcome } from '../store.ts';

/**
 * The lifecycle of an effect as one pure function. Production, simulator and model check share it. It refuses every
 * event without a row in the state table (effects.md, "States"), and then changes nothing.
 */
export type LifeEvent =
  /** Policy asks for approval. Also sent when a new request for approval replaces the old one. */
  | { readonly kind: 'ask'; readonly approvalId: string }
  /** The next attempt: permitted, with holds and a lease. */
  | { readonly kind: 'admit'; readonly lease: Lease }
  | { readonly kind: 'reject'; readonly at: number; readonly until: number }
  /** The request for approval expired. `granted`: people agreed, but the call could not be sent in time. */
  | { readonly kind: 'expire'; readonly at: number; readonly granted: boolean }
  /** People agreed, but the call can no longer be made. */
  | { readonly kind: 'give_up'; readonly at: number; readonly decision: DeniedDecision; readonly reason: Reason }
  /** The lease is over, or its owner is known to be dead (`ownerDead`). */
  | { readonly kind: 'lose'; readonly at: number; readonly ownerDead: boolean }
  | {
      readonly kind: 'settle';
      readonly at: number;
      readonly fence: Fence;
      readonly outcome: SettleOutcome;
      readonly settledBy: SettledBy;
      readonly evidence: Evidence;
    }
  | {
      readonly kind: 'resolve';
      readonly at: number;
      readonly fence: Fence;
      readonly outcome:
        | { readonly kind: 'happened'; readonly receipt: { readonly id: string; readonly jws: string } }
        | { readonly kind: 'not_happened' };
      readonly settledBy: Extract<SettledBy, { by: 'resolve' | 'probe' }>;
      readonly evidence: Evidence;
      readonly force: boolean;
    };

export type LifeRefusal =
  /** The state table has no row for it. */
  | 'not_allowed'
  /** The attempt is not the effect's present one. */
  | 'fenced_off'
  | 'lease_alive'
  | 'too_early'
  /** The same is on record already. */
  | 'unchanged'
  /** Evidence contradicts the record. The key takes no more attempts. */
  | 'contradiction';

export type LifeStep =
  | { readonly kind: 'next'; readonly effect: EffectRecord }
  | { readonly kind: 'refused'; readonly why: LifeRefusal };

/** Messages for a request for approval that ended without a call. */
export const EXPIRED_UNDECIDED =
  'Nobody decided before the request for approval expired. The key is free: send the call again to ask anew.';
export const EXPIRED_GRANTED =
  'It was approved, and could not be sent before the request for approval expired. The key is free: send the call again to ask anew.';

/** At most this many attempts of one effect may have sent something. */
export const MAX_ATTEMPTS = 10;

/** Evidence of an attempt that provably sent nothing. */
export const NOT_DISPATCHED = 'not_dispatched';

/**
 * Whether no further attempt is allowed. The number of an attempt is its fence and only grows; attempts that sent
 * nothing do not count.
 */
export function isExhausted({ attempt, unsent }: Pick<EffectRecord, 'attempt' | 'unsent'>): boolean {
  return attempt - unsent >= MAX_ATTEMPTS;
}

/** Whether two fences name the same attempt. */
export function sameFence(a: Fence, b: Fence): boolean {
  return a.epoch === b.epoch && a.n === b.n && a.nonce === b.nonce;
}

/** An effect before its first event: everything but its state. */
export type FreshEffect = Omit<EffectRecord, 'life'>;

/** The rows of the state table that start from "none". */
export function begin(fresh: FreshEffect, event: Extract<LifeEvent, { kind: 'ask' | 'admit' }>): EffectRecord {
  if (event.kind === 'ask') return { ...fresh, life: { state: 'pending_approval', approvalId: event.approvalId } };
  const { fence, admittedAt } = event.lease;
  return {
    id: fresh.id,
    workspace: fresh.workspace,
    idempotencyKey: fresh.idempotencyKey,
    fingerprint: fresh.fingerprint,
    action: fresh.action,
    actor: fresh.actor,
    createdAt: fresh.createdAt,
    life: { state: 'executing', lease: event.lease },
    attempt: fence.n,
    unsent: fresh.unsent,
    generation: fresh.generation,
    firstDispatchAt: admittedAt,
    mayHaveHappened: fresh.mayHaveHappened,
    closed: fresh.closed,
    holds: fresh.holds,
    holdState: fresh.holdState,
    claims: fresh.claims,
    uses: fresh.uses,
    trace: fresh.trace,
    stages: fresh.stages,
    metadata: fresh.metadata,
    sealed: fresh.sealed,
  };
}

/** Applies one event. @returns the effect after it, or why the table refuses the event */
export function advance(effect: EffectRecord, event: LifeEvent): LifeStep {
  switch (event.kind) {
    case 'ask':
      return canBegin(effect)
        ? next(effect, { state: 'pending_approval', approvalId: event.approvalId })
        : refused('not_allowed');
    case 'admit':
      return admit(effect, event.lease);
    case 'reject':
      if (effect.life.state !== 'pending_approval') return refused('not_allowed');
      return next(effect, { state: 'rejected', at: event.at, approvalId: effect.life.approvalId, until: event.until });
    case 'expire':
      if (effect.life.state !== 'pending_approval') return refused('not_allowed');
      return next(effect, {
        state: 'denied',
        at: event.at,
        decision: 'denied_policy',
        reason: {
          code: 'approval_expired',
          message: event.granted ? EXPIRED_GRANTED : EXPIRED_UNDECIDED,
        },
        mismatches: [],
      });
    case 'give_up': {
      if (effect.life.state !== 'pending_approval') return refused('not_allowed');
      const { at, decision, reason } = event;
      return next(effect, { state: 'denied', at, decision, reason, mismatches: [] });
    }
    case 'lose': {
      if (effect.life.state !== 'executing') return refused('not_allowed');
      const { lease } = effect.life;
      if (!event.ownerDead && event.at < lease.leaseEnd) return refused('lease_alive');
      return next(effect, {
        state: 'unknown',
        at: event.at,
        lease,
        evidence: {
          code: 'lease_over',
          message: event.ownerDead
            ? 'The gateway that ran the attempt ended before it recorded an outcome.'
            : 'The lease ended before an outcome was recorded.',
          answered: null,
          startedAt: lease.admittedAt,
          endedAt: null,
        },
      });
    }
    case 'settle':
      return settle(effect, event);
    case 'resolve':
      return resolve(effect, event);
  }
}

function next(effect: EffectRecord, life: Life): LifeStep {
  return { kind: 'next', effect: changed(effect, { life }) };
}

/**
 * A copy of a record with some members changed. Members are written out here and in {@link begin}: every call passes
 * here several times, and copying so many members by spread took a tenth of the time of the store's thread.
 */
export function changed(
  effect: EffectRecord,
  to: Partial<Pick<EffectRecord, 'life' | 'unsent' | 'stages' | 'holdState' | 'claims' | 'uses'>>,
): EffectRecord {
  return {
    id: effect.id,
    workspace: effect.workspace,
    idempotencyKey: effect.idempotencyKey,
    fingerprint: effect.fingerprint,
    action: effect.action,
    actor: effect.actor,
    createdAt: effect.createdAt,
    life: to.life ?? effect.life,
    attempt: effect.attempt,
    unsent: to.unsent ?? effect.unsent,
    generation: effect.generation,
    firstDispatchAt: effect.firstDispatchAt,
    mayHaveHappened: effect.mayHaveHappened,
    closed: effect.closed,
    holds: effect.holds,
    holdState: to.holdState ?? effect.holdState,
    claims: to.claims ?? effect.claims,
    uses: to.uses ?? effect.uses,
    trace: effect.trace,
    stages: to.stages ?? effect.stages,
    metadata: effect.metadata,
    sealed: effect.sealed,
  };
}

function refused(why: LifeRefusal): LifeStep {
  return { kind: 'refused', why };
}

function canBegin(effect: EffectRecord): boolean {
  return !effect.closed && (effect.life.state === 'failed' || effect.life.state === 'pending_approval');
}

function admit(effect: EffectRecord, lease: Lease): LifeStep {
  if (effect.closed || isExhausted(effect) || lease.fence.n !== effect.attempt + 1) return refused('not_allowed');
  const { life } = effect;
  const repeatsUnknown = life.state === 'unknown';
  if (!repeatsUnknown && life.state !== 'failed' && life.state !== 'pending_approval') return refused('not_allowed');
  // The upstream gets the same key as long as an attempt under that key may have happened.
  const sameGeneration = repeatsUnknown || effect.attempt === 0;
  return {
    kind: 'next',
    effect: {
      ...effect,
      life: { state: 'executing', lease },
      attempt: lease.fence.n,
      generation: sameGeneration ? effect.generation : effect.generation + 1,
      firstDispatchAt: repeatsUnknown ? effect.firstDispatchAt : lease.admittedAt,
      mayHaveHappened: repeatsUnknown,
    },
  };
}

function settle(effect: EffectRecord, event: Extract<LifeEvent, { kind: 'settle' }>): LifeStep {
  const { life } = effect;
  const { outcome } = event;
  switch (life.state) {
    case 'executing':
      if (!sameFence(life.lease.fence, event.fence)) return staleAnswer(effect, event);
      return settleOwned(effect, life.lease, event);
    case 'unknown':
      if (!sameFence(life.lease.fence, event.fence)) return staleAnswer(effect, event);
      if (outcome.kind === 'unknown') return refused('unchanged');
      return settleOwned(effect, life.lease, { ...event, settledBy: { by: 'late_answer' } });
    case 'failed':
      if (outcome.kind !== 'committed') return refused(event.fence.n === effect.attempt ? 'unchanged' : 'fenced_off');
      // Late evidence that it happened counts only while no later attempt was made.
      if (event.fence.n !== effect.attempt) return refused('contradiction');
      return next(effect, committed(event, { by: 'late_answer' }));
    case 'committed':
      return refused(event.fence.n === effect.attempt ? 'unchanged' : 'fenced_off');
    case 'pending_approval':
      return refused(outcome.kind === 'committed' && effect.attempt > 0 ? 'contradiction' : 'fenced_off');
    case 'denied':
    case 'rejected':
      return refused(outcome.kind === 'committed' ? 'contradiction' : 'fenced_off');
  }
}

/**
 * An answer to an earlier attempt. Within one generation the upstream removes duplicates, so the answer is no
 * contradiction.
 */
function staleAnswer(effect: EffectRecord, event: Extract<LifeEvent, { kind: 'settle' }>): LifeStep {
  if (event.outcome.kind !== 'committed' || event.fence.n >= effect.attempt) return refused('fenced_off');
  return refused(effect.mayHaveHappened ? 'fenced_off' : 'contradiction');
}

function settleOwned(before: EffectRecord, lease: Lease, event: Extract<LifeEvent, { kind: 'settle' }>): LifeStep {
  const { outcome, at, evidence, settledBy } = event;
  if (outcome.kind === 'committed') return next(before, committed(event, settledBy));
  const effect = countUnsent(before, event);
  // While an earlier attempt may have happened, this one cannot establish that nothing did.
  if (outcome.kind === 'unknown' || effect.mayHaveHappened)
    return next(effect, { state: 'unknown', at, lease, evidence });
  if (outcome.kind === 'failed')
    return next(effect, { state: 'failed', at, settledBy, evidence, result: outcome.result });
  // A refusal before the first byte: an effect that failed before stays failed, a first attempt ends as a denial.
  if (effect.attempt > 1) return next(effect, { state: 'failed', at, settledBy, evidence, result: null });
  return next(effect, {
    state: 'denied',
    at,
    decision: outcome.decision,
    reason: outcome.reason,
    mismatches: outcome.mismatches,
  });
}

/**
 * Counts an attempt that sent nothing, exactly once. While an earlier attempt may have happened, the effect stays
 * unknown, and the same settlement can arrive a second time.
 */
function countUnsent(effect: EffectRecord, event: Extract<LifeEvent, { kind: 'settle' }>): EffectRecord {
  if (event.outcome.kind === 'unknown' || event.evidence.code !== NOT_DISPATCHED) return effect;
  if (effect.life.state !== 'executing' && effect.mayHaveHappened) return effect;
  return changed(effect, { unsent: effect.unsent + 1 });
}

function committed(event: Extract<LifeEvent, { kind: 'settle' }>, settledBy: SettledBy): Life {
  if (event.outcome.kind !== 'committed') throw new TypeError('only a committed outcome makes a committed effect');
  const { receipt, result, accepted, responseTruncated } = event.outcome;
  return {
    state: 'committed',
    at: event.at,
    settledBy,
    evidence: event.evidence,
    receipt,
    result,
    accepted,
    responseTruncated,
  };
}

function resolve(effect: EffectRecord, event: Extract<LifeEvent, { kind: 'resolve' }>): LifeStep {
  const { life } = effect;
  const { outcome, at, settledBy, evidence } = event;
  if (life.state !== 'unknown') return refused('not_allowed');
  if (!sameFence(life.lease.fence, event.fence)) return refused('fenced_off');
  if (outcome.kind === 'happened') {
    return next(effect, {
      state: 'committed',
      at,
      settledBy,
      evidence,
      receipt: outcome.receipt,
      result: null,
      accepted: false,
      responseTruncated: false,
    });
  }
  if (at < life.lease.quiesceUntil && !event.force) return refused('too_early');
  return {
    kind: 'next',
    effect: { ...effect, mayHaveHappened: false, life: { state: 'failed', at, settledBy, evidence, result: null } },
  };
}

/** Whether something of it is still to come: it is not forgotten, and its params are needed. */
export function isUnsettled(state: EffectState): boolean {
  return state === 'executing' || state === 'pending_approval' || state === 'unknown';
}
