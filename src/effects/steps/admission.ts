import { type ApprovalRecord, isQuorate, rejectionReason } from '../model/approval.ts';
import type { DeniedDecision, Reason } from '../model/decision.ts';
import type { EffectRecord, Tombstone } from '../model/effect.ts';
import { EXPIRED_GRANTED, isExhausted } from './lifecycle.ts';
import { exceededLimits, isAskedAbout } from './beyond-limits.ts';
import { satisfyObligations } from './obligations.ts';
import {
  agentOf,
  askForApproval,
  CLOSED,
  conflict,
  denial,
  deniedData,
  dispatch,
  event,
  EXHAUSTED,
  refusedAs,
} from './admission-plans.ts';
import { allowanceFor, allowedBy, withUse } from './allowances.ts';
import { generationOf } from './generations.ts';
import type { Binding, EffectWrite, Plan, StepView } from './plan.ts';
import type { Admission, AdmitRequest, Refusal } from '../store.ts';
import { loseLeaseStep } from './sweep.ts';
import type { Obligation, Permit } from '../model/verdict.ts';
import { expireApprovalStep, giveUpStep } from './voting.ts';

/** How long a caller should wait before it asks again for a running effect, ms. */
const POLL_MS = 1000;

/**
 * The one atomic admission: idempotency, fingerprint, approval, pause, claim, reservation, rate, budget, lease, ledger.
 * Pure: reads the view, and returns what to write and what to answer.
 */
export function admitStep(view: StepView, request: AdmitRequest): Plan<Admission> {
  const { verdict } = request;
  // A caller that may not act must not learn what the idempotency key is bound to.
  if (verdict.kind === 'deny' && (verdict.decision === 'denied_permission' || verdict.decision === 'denied_identity')) {
    return denial(view, request, verdict.decision, verdict.reason);
  }
  if (request.generationMs !== null) return admitGeneration(view, request, request.generationMs);
  const binding = view.binding(request.workspace, request.idempotencyKey);
  if (request.dispatches !== null)
    return dispatchGranted(view, request, request.dispatches, binding?.kind === 'effect' ? binding.effect : null);
  if (binding === null) return evaluateFresh(view, request, null, EMPTY);
  return bound(view, request, binding);
}

/** A call whose key is in use. */
function bound(view: StepView, request: AdmitRequest, binding: Binding): Plan<Admission> {
  const there = binding.kind === 'effect' ? binding.effect : binding.tombstone;
  if (there.fingerprint !== request.fingerprint) return conflict(view, request, binding);
  return binding.kind === 'effect'
    ? sameKeyAgain(view, request, binding.effect, EMPTY)
    : longAgo(view, request, binding.tombstone);
}

/** A call under a derived key: the generation that it belongs to is found and bound in the same step. */
function admitGeneration(view: StepView, request: AdmitRequest, windowMs: number): Plan<Admission> {
  const generation = generationOf(view, request, windowMs);
  if (generation.kind === 'joins') return bound(view, request, generation.binding);
  const plan = evaluateFresh(view, { ...request, idempotencyKey: generation.key }, null, EMPTY);
  const begun = plan.effects?.find(({ binding }) => binding === 'bind');
  if (begun === undefined) return plan;
  return { ...plan, bindAlso: { key: request.idempotencyKey, effectId: begun.record.id } };
}

/** Writes of an earlier part of the same step, to be merged with those of a later part. */
interface Carried {
  readonly effects: readonly EffectWrite[];
  readonly plan: Omit<Plan<unknown>, 'reply' | 'effects'>;
}

const EMPTY: Carried = { effects: [], plan: {} };

function carry(carried: Carried, plan: Plan<Admission>): Plan<Admission> {
  if (carried === EMPTY) return plan;
  const reply = shifted(plan.reply, carried.plan.events?.length ?? 0);
  return { ...mergePlans(carried.plan, plan), reply, effects: [...carried.effects, ...(plan.effects ?? [])] };
}

/** The carried events come first in the ledger, so the later ones move back. */
function shifted(reply: Admission, before: number): Admission {
  return reply.kind === 'dispatch' ? { ...reply, ledger: { ...reply.ledger, seq: reply.ledger.seq + before } } : reply;
}

function mergePlans<Reply>(first: Omit<Plan<unknown>, 'reply' | 'effects'>, second: Plan<Reply>): Plan<Reply> {
  return {
    ...first,
    ...second,
    budgets: [...(first.budgets ?? []), ...(second.budgets ?? [])],
    approvals: [...(first.approvals ?? []), ...(second.approvals ?? [])],
    claims: [...(first.claims ?? []), ...(second.claims ?? [])],
    claimsGone: [...(first.claimsGone ?? []), ...(second.claimsGone ?? [])],
    uses: [...(first.uses ?? []), ...(second.uses ?? [])],
    events: [...(first.events ?? []), ...(second.events ?? [])],
  };
}

/** The table "the same key again", for an equal fingerprint. */
function sameKeyAgain(view: StepView, request: AdmitRequest, effect: EffectRecord, carried: Carried): Plan<Admission> {
  const { life } = effect;
  switch (life.state) {
    case 'committed':
      return {
        reply: { kind: 'existing', effect, safeToRetry: false, retryAfterMs: null },
        events: [event('effect.duplicate_blocked', effect.id, agentOf(request), { receipt_id: life.receipt.id })],
        throttle: `${request.workspace}\n${request.idempotencyKey}\nduplicate`,
      };
    case 'executing': {
      const left = life.lease.leaseEnd - view.now;
      if (left > 0)
        return { reply: { kind: 'existing', effect, safeToRetry: false, retryAfterMs: Math.min(POLL_MS, left) } };
      const lost = loseLeaseStep(view, effect, false);
      if (lost === null) return { reply: { kind: 'existing', effect, safeToRetry: false, retryAfterMs: POLL_MS } };
      const { reply, effects, ...plan } = lost;
      return sameKeyAgain(view, request, reply, { effects: effects ?? [], plan });
    }
    case 'unknown':
      return repeatUnknown(view, request, effect, carried);
    case 'failed':
      if (effect.closed) return denial(view, request, 'denied_policy', CLOSED, effect);
      if (isExhausted(effect)) return denial(view, request, 'denied_policy', EXHAUSTED, effect);
      return evaluateFresh(view, request, effect, carried);
    case 'pending_approval':
      return waiting(view, request, effect, life.approvalId);
    case 'rejected':
      return denial(view, request, 'denied_policy', rejectedAs(view, request, effect), effect);
    case 'denied':
      return evaluateFresh(view, request, null, carried);
  }
}

/** Why a rejected action is refused, in the approver's own words where they are on record. */
function rejectedAs(view: StepView, request: AdmitRequest, effect: EffectRecord | null): Reason {
  return rejectionReason(
    effect?.life.state === 'rejected' ? view.approval(request.workspace, effect.life.approvalId) : null,
  );
}

function longAgo(view: StepView, request: AdmitRequest, tombstone: Tombstone): Plan<Admission> {
  switch (tombstone.outcome.state) {
    case 'committed':
      return {
        reply: { kind: 'expired', tombstone },
        events: [
          event('effect.duplicate_blocked', tombstone.id, agentOf(request), {
            receipt_id: tombstone.outcome.receipt.id,
          }),
        ],
        throttle: `${request.workspace}\n${request.idempotencyKey}\nduplicate`,
      };
    case 'rejected':
      return denial(view, request, 'denied_policy', rejectionReason(null));
    case 'failed':
      return evaluateFresh(view, request, null, EMPTY);
  }
}

/** While an outcome is unknown, only a call that the upstream itself deduplicates runs again. */
function repeatUnknown(view: StepView, request: AdmitRequest, effect: EffectRecord, carried: Carried): Plan<Admission> {
  const window = request.times.idempotentForMs;
  const { verdict } = request;
  // An approval covers one dispatch. While its outcome is unknown, nobody is asked for another approval.
  const asks = verdict.kind === 'permit' && verdict.mode === 'enforce' && verdict.approvals.length > 0;
  const repeatable =
    window !== null &&
    !asks &&
    !effect.closed &&
    // What may have happened is not what the caller asks.
    effect.trace.changed === undefined &&
    // Of people's word to go beyond a limit one dispatch was made.
    effect.trace.beyond === undefined &&
    !isExhausted(effect) &&
    effect.action.toolDigest === request.action.toolDigest &&
    effect.firstDispatchAt !== null &&
    view.now < effect.firstDispatchAt + window;
  const stay: Plan<Admission> = {
    reply: {
      kind: 'existing',
      effect,
      safeToRetry: repeatable,
      // When somebody will have found out, nobody can promise.
      retryAfterMs: null,
    },
  };
  if (!repeatable) return carry(carried, stay);
  // Also before a denial: it is judged anew on what is there now, or the call would stay where it is for ever.
  const stale = staleness(view, request);
  if (stale !== null) return stale;
  if (verdict.kind === 'deny' || request.pausedBy !== null) return carry(carried, stay);
  // The holds of the unknown attempt stay: it is the same action, and it happens at most once.
  const scope = { hold: 'all', already: effect.holds, freed: [], counted: [], isGranted: false } as const;
  const met = satisfyObligations(
    view,
    { ...request, effectId: effect.id },
    { ...verdict, obligations: verdict.obligations.filter((it) => it.kind !== 'budget') },
    scope,
  );
  // Nobody is asked for a limit either.
  if (met.kind !== 'satisfied') return carry(carried, stay);
  return carry(carried, dispatch(view, request, effect, { ...met, holds: effect.holds, changes: [] }, null));
}

function waiting(view: StepView, request: AdmitRequest, effect: EffectRecord, approvalId: string): Plan<Admission> {
  const approval = view.approval(request.workspace, approvalId);
  if (approval === null)
    throw new TypeError(`effect ${effect.id} waits for approval ${approvalId}, which is not on record`);
  if (view.now >= approval.expiresAt) {
    const { effects = [], reply: _, ...plan } = expireApprovalStep(view, effect, approval);
    return evaluateFresh(view, request, null, { effects, plan });
  }
  const pending: Plan<Admission> = { reply: { kind: 'pending', effect, approval, created: false } };
  const { verdict } = request;
  const limits = request.dispatches === null ? otherLimits(view, request, effect, approval) : null;
  if (limits !== null) return { reply: { kind: 'exceeds', limits } };
  const { changed } = approval;
  // An approver has changed the call. Whoever asks as before joins it, and only the gateway sends what was approved.
  if (changed !== undefined && request.dispatches === null)
    if (approval.status === 'granted' || changed.askedDigest === request.approvalDigest) return pending;
  if (verdict.kind === 'deny' && approval.status !== 'granted') return pending;
  const sameQuestion = approval.digest === request.approvalDigest;
  const isQuestionOpen = sameQuestion && !isQuorate(approval.requirements, approval.votes);
  if (verdict.kind === 'permit' && isQuestionOpen) return pending;
  // What was granted is not taken back because of what was true before.
  const stale = staleness(view, request);
  if (stale !== null) return stale;
  if (verdict.kind === 'deny') return denial(view, request, verdict.decision, verdict.reason, effect);
  if (!sameQuestion && verdict.approvals.length > 0) return askForApproval(view, request, verdict, effect);
  return evaluatePermit(view, request, verdict, effect, sameQuestion ? approval : null, EMPTY);
}

/**
 * The limits that a call which waits would go beyond, where those are not what it was judged with: what people are asked
 * can only be compared once it is; `null`: just these.
 */
function otherLimits(
  view: StepView,
  request: AdmitRequest,
  { holds, holdState }: EffectRecord,
  { rates = [] }: ApprovalRecord,
): readonly string[] | null {
  const { verdict } = request;
  if (verdict.kind === 'deny' || verdict.mode === 'observe') return null;
  const scope = { already: holdState === 'held' ? holds : [], freed: [], counted: rates };
  const exceeded = exceededLimits(view, request, verdict, scope);
  return isAskedAbout(verdict, exceeded, false) ? null : exceeded;
}

/**
 * The gateway sends a granted call. It sends only a call that waits on exactly this request for approval. In every
 * other case, and if the call still waits for the reason on record, it writes nothing, because this step runs again and
 * again.
 */
function dispatchGranted(
  view: StepView,
  request: AdmitRequest,
  approvalId: string,
  effect: EffectRecord | null,
): Plan<Admission> {
  const approval = view.approval(request.workspace, approvalId);
  if (effect === null || approval === null || approval.effectId !== effect.id)
    return { reply: refusedAs(request.effectId, 'denied_policy', OVER, 0) };
  const { life } = effect;
  if (life.state !== 'pending_approval')
    return { reply: { kind: 'existing', effect, safeToRetry: false, retryAfterMs: null } };
  if (approval.status !== 'granted' || life.approvalId !== approvalId) {
    const present = view.approval(request.workspace, life.approvalId);
    return { reply: { kind: 'pending', effect, approval: present ?? approval, created: false } };
  }
  if (view.now >= approval.expiresAt)
    return {
      ...expireApprovalStep(view, effect, approval),
      reply: refusedAs(effect.id, 'denied_policy', OVER, effect.attempt),
    };
  if (approval.changed !== undefined && request.verdict.kind === 'permit' && approval.digest !== request.approvalDigest)
    return staleness(view, request) ?? endChanged(view, request, approval, effect);
  const plan = waiting(view, request, effect, approvalId);
  return plan.reply.kind === 'refused' && plan.reply.decision !== 'idempotency_conflict'
    ? stop(view, request, approval, plan.reply, plan.reply.decision)
    : plan;
}

/** What an approver changed would no longer be what was approved. Nobody else is asked what the agent never asked. */
function endChanged(
  view: StepView,
  { workspace }: AdmitRequest,
  approval: ApprovalRecord,
  effect: EffectRecord,
): Plan<Admission> {
  const decision = 'denied_policy';
  const actor = { type: 'gateway', id: 'approvals' } as const;
  const given = giveUpStep(view, { workspace, approvalId: approval.id, decision, reason: CHANGED_SINCE, actor });
  return { ...given, reply: refusedAs(effect.id, decision, CHANGED_SINCE, effect.attempt) };
}

const CHANGED_SINCE: Reason = {
  code: 'approval_expired',
  message:
    'An approver changed the call and it was approved, but policy or the tool is no longer as it was then, so it was not sent. The key is free: send the call again to ask anew.',
};

const OVER: Reason = { code: 'approval_expired', message: EXPIRED_GRANTED };

/** Records why a granted call was stopped, if the reason is new. */
function stop(
  view: StepView,
  request: AdmitRequest,
  approval: ApprovalRecord,
  reply: Refusal,
  decision: DeniedDecision,
): Plan<Admission> {
  const { reason } = reply;
  const before = approval.stopped?.reason;
  if (before?.code === reason.code && before.rule === reason.rule) return { reply };
  return {
    reply,
    approvals: [{ ...approval, stopped: { at: view.now, decision, reason } }],
    events: [
      event('effect.denied', reply.effectId, agentOf(request), {
        ...deniedData(request, decision, reason),
        approval_id: approval.id,
      }),
    ],
  };
}

/** Whether policy, pauses, an entity that policy looked at or a calendar window changed, so that the evaluation no longer fits what is in force. */
function staleness(view: StepView, request: AdmitRequest): Plan<Admission> | null {
  const versions = view.versions(request.workspace);
  // What was looked at is guarded with the step: an entity cannot change between the verdict and the admission.
  const { entities = [] } = request.verdict.trace;
  const moved =
    versions.policy !== request.seen.policy ||
    versions.pauses !== request.seen.pauses ||
    entities.some((seen) => view.entityVersion(request.workspace, seen) !== seen.version) ||
    (request.verdict.kind === 'permit' &&
      request.verdict.obligations.some((obligation) => outsideWindow(obligation, view.now)));
  return moved ? { reply: { kind: 'stale', versions, now: view.now } } : null;
}

function outsideWindow(obligation: Obligation, now: number): boolean {
  return (
    obligation.kind === 'budget' &&
    obligation.window.kind === 'calendar' &&
    (now < obligation.window.start || now >= obligation.window.end)
  );
}

/** Checks pauses, policy, approvals and obligations for an action that is not under way. `earlier`: a failed effect. */
function evaluateFresh(
  view: StepView,
  request: AdmitRequest,
  earlier: EffectRecord | null,
  carried: Carried,
): Plan<Admission> {
  const stale = staleness(view, request);
  if (stale !== null) return stale;
  const { verdict } = request;
  if (request.pausedBy !== null && (request.pausedBy.until === null || view.now < request.pausedBy.until)) {
    const { id, reason, until } = request.pausedBy;
    return carry(
      carried,
      denial(
        view,
        request,
        'denied_paused',
        { code: 'paused', message: `Paused: ${reason} (${id}).` },
        earlier,
        until === null ? null : until - view.now,
      ),
    );
  }
  if (verdict.kind === 'deny') return carry(carried, denial(view, request, verdict.decision, verdict.reason, earlier));
  if (verdict.approvals.length > 0 && verdict.mode === 'enforce') {
    const rejection = view.rejection(request.workspace, request.fingerprint);
    if (rejection !== null) {
      const reason = rejectedAs(view, request, view.effect(request.workspace, rejection.effectId));
      return carry(carried, denial(view, request, 'denied_policy', reason, earlier));
    }
  }
  return evaluatePermit(view, request, verdict, earlier, null, carried);
}

function evaluatePermit(
  view: StepView,
  request: AdmitRequest,
  permit: Permit,
  earlier: EffectRecord | null,
  granted: ApprovalRecord | null,
  carried: Carried,
): Plan<Admission> {
  const effectId = earlier?.id ?? request.effectId;
  if (earlier?.life.state === 'pending_approval' && request.pausedBy !== null) {
    return denial(
      view,
      request,
      'denied_paused',
      { code: 'paused', message: `Paused: ${request.pausedBy.reason} (${request.pausedBy.id}).` },
      earlier,
    );
  }
  const isAsked = permit.approvals.length > 0 && granted === null && permit.mode === 'enforce';
  const allowance = isAsked ? allowanceFor(view, request) : null;
  const mustAsk = isAsked && allowance === null;
  const already = earlier !== null && earlier.holdState === 'held' ? earlier.holds : [];
  const asked =
    earlier?.life.state === 'pending_approval' ? view.approval(request.workspace, earlier.life.approvalId) : null;
  const asks = mustAsk && !permit.approvals.some((approval) => approval.hold === 'all');
  const met = satisfyObligations(view, earlier === null ? request : { ...request, effectId }, permit, {
    hold: asks ? 'own' : 'all',
    already,
    freed: carried.plan.budgets ?? [],
    counted: asked?.rates ?? [],
    isGranted: granted !== null,
  });
  if (met.kind === 'exceeds') return { reply: met };
  if (met.kind === 'refused') {
    const refusal = denial(view, request, met.decision, met.reason, earlier, met.retryAfterMs);
    const reply = refusal.reply.kind === 'refused' ? { ...refusal.reply, budgets: met.budgets } : refusal.reply;
    return carry(carried, { ...refusal, reply });
  }
  if (mustAsk) return carry(carried, askForApproval(view, request, permit, earlier, met));
  if (allowance !== null) {
    const plan = dispatch(view, allowedBy(view, request, allowance), earlier, met, null);
    return carry(carried, withUse(plan, allowance, agentOf(request)));
  }
  const unasked = permit.approvals[0];
  const observed =
    met.observed ??
    (permit.mode === 'observe' && unasked !== undefined
      ? { would: 'pending_approval' as const, rule: unasked.rule }
      : null);
  return carry(
    carried,
    dispatch(view, request, earlier, observed === met.observed ? met : { ...met, observed }, granted),
  );
}
