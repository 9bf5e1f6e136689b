import { statusShown } from '../model/answer.ts';
import type { EffectRecord, Lease } from '../model/effect.ts';
import { isoTime } from '../model/iso-time.ts';
import type { LedgerActor, LedgerDraft } from '../model/ledger.ts';
import type { ResolveRequest, Resolution, Settlement, SettleRequest, AskedOf, AnswerOf } from '../store.ts';
import { release } from './give-back.ts';
import { recordedAs } from './ledger-states.ts';
import { advance, changed, type LifeRefusal, sameFence } from './lifecycle.ts';
import type { Plan, StepView } from './plan.ts';
import { loseLeaseStep } from './sweep.ts';

/**
 * Records the outcome of an attempt. Only the owner of the attempt may do that, with its fence. Late evidence follows
 * the state table.
 */
export function settleStep(view: StepView, request: SettleRequest): Plan<Settlement> {
  const effect = view.effect(request.workspace, request.effectId);
  if (effect === null) return { reply: { kind: 'absent' } };
  const step = advance(effect, {
    kind: 'settle',
    at: view.now,
    fence: request.fence,
    outcome: request.outcome,
    settledBy: request.settledBy,
    evidence: request.evidence,
  });
  if (step.kind === 'refused') return refusedSettlement(effect, request, step.why);
  const settled = changed(step.effect, { stages: [...effect.stages, ...request.stages] });
  const { life } = settled;
  const amounts = request.outcome.kind === 'committed' ? request.outcome.amounts : undefined;
  const released =
    life.state === 'unknown'
      ? release(view, settled, 'keep', life.lease.quiesceUntil)
      : release(view, settled, life.state === 'committed' ? 'post' : 'void', null, amounts);
  return {
    ...released.plan,
    reply: { kind: 'settled' },
    effects: [{ record: released.effect, binding: life.state === 'denied' ? 'release' : 'keep' }],
    events: [...executionEvents(effect, settled, request), ...released.events],
  };
}

function refusedSettlement(effect: EffectRecord, request: SettleRequest, why: LifeRefusal): Plan<Settlement> {
  const { life } = effect;
  if (why === 'unchanged' && life.state === 'committed' && request.outcome.kind === 'committed') {
    // The same settlement arrived twice (for example, it was also spilled). It is done already, unless the receipt is
    // of another attempt.
    if (life.receipt.jws === request.outcome.receipt.jws) return { reply: { kind: 'settled' } };
  }
  if (why !== 'contradiction') return { reply: { kind: 'refused', effect, contradiction: false } };
  const closed: EffectRecord = { ...effect, closed: true };
  return {
    reply: { kind: 'refused', effect: closed, contradiction: true },
    effects: [{ record: closed, binding: 'keep' }],
    events: [
      {
        kind: 'effect.contradiction',
        effectId: effect.id,
        actor: gateway,
        data: {
          state: life.state,
          said: request.outcome.kind,
          attempt: request.fence.n,
          current_attempt: effect.attempt,
          evidence: request.evidence.message,
        },
      },
    ],
  };
}

const gateway: LedgerActor = { type: 'gateway', id: 'owner' };

function executionEvents(before: EffectRecord, after: EffectRecord, request: SettleRequest): readonly LedgerDraft[] {
  const { outcome, evidence } = request;
  const draft = (kind: LedgerDraft['kind'], data: LedgerDraft['data']): LedgerDraft => ({
    kind,
    effectId: before.id,
    actor: gateway,
    data,
  });
  const attempt = request.fence.n;
  const seen = { attempt, code: evidence.code, status: statusShown(evidence.answered) };
  const { state } = after.life;
  const started =
    evidence.startedAt === null ? [] : [draft('execution.started', { attempt, at: isoTime(evidence.startedAt) })];
  const verified = request.stages.some((stage) => stage.stage === 'state_check' && stage.status === 'passed')
    ? [draft('state.verified', { attempt })]
    : [];
  switch (outcome.kind) {
    case 'committed':
      return [
        ...verified,
        ...started,
        draft('execution.succeeded', { ...seen, ...recordedAs('execution.succeeded', state) }),
        draft('receipt.issued', { receipt_id: outcome.receipt.id }),
      ];
    case 'failed':
      return [
        ...verified,
        ...started,
        draft('execution.failed', { ...seen, ...recordedAs('execution.failed', state) }),
      ];
    case 'unknown':
      return [...verified, ...started, draft('execution.lost', { ...seen, ...recordedAs('execution.lost', state) })];
    case 'denied': {
      const drifted =
        outcome.reason.code === 'state_drift'
          ? [draft('state.drifted', { attempt, fields: outcome.mismatches.map(({ field }) => field) })]
          : [];
      return [
        ...verified,
        ...drifted,
        draft('effect.denied', {
          attempt,
          decision: outcome.decision,
          code: outcome.reason.code,
          ...recordedAs('effect.denied', state),
        }),
      ];
    }
  }
}

/** Settles an unknown outcome by the statement of a person, or by the evidence of a probe. */
export function resolveStep(view: StepView, request: ResolveRequest): Plan<Resolution> {
  const effect = view.effect(request.workspace, request.effectId);
  if (effect === null) return { reply: { kind: 'absent' } };
  if (effect.life.state === 'executing') {
    const lost = loseLeaseStep(view, effect, false);
    if (lost === null) return { reply: { kind: 'not_unknown', effect } };
    const { effects: _, ...first } = lost;
    const then = resolveEffect(view, request, lost.reply);
    return {
      ...first,
      ...then,
      // The lost effect has released its claims already, so the changes to them are in the first plan.
      claims: [...(lost.claims ?? []), ...(then.claims ?? [])],
      claimsGone: [...(lost.claimsGone ?? []), ...(then.claimsGone ?? [])],
      events: [...(lost.events ?? []), ...(then.events ?? [])],
      effects: then.effects ?? lost.effects ?? [],
    };
  }
  return resolveEffect(view, request, effect);
}

function resolveEffect(view: StepView, request: ResolveRequest, effect: EffectRecord): Plan<Resolution> {
  const { life } = effect;
  if (life.state !== 'unknown') return { reply: alreadySettled(effect, request) };
  const step = advance(effect, {
    kind: 'resolve',
    at: view.now,
    fence: request.fence,
    outcome: request.outcome,
    settledBy: request.settledBy,
    evidence: {
      code: 'declared',
      message:
        request.outcome.kind === 'happened'
          ? 'It was established that the action happened.'
          : 'It was established that the action did not happen.',
      answered: null,
      startedAt: life.lease.admittedAt,
      endedAt: null,
    },
    force: request.force,
  });
  if (step.kind === 'refused') return { reply: refusedResolution(view, effect, life.lease, step.why) };
  const happened = request.outcome.kind === 'happened';
  const released = release(view, step.effect, happened ? 'post' : 'void', null);
  const { settledBy } = request;
  return {
    ...released.plan,
    reply: { kind: 'resolved', effect: released.effect },
    effects: [{ record: released.effect, binding: 'keep' }],
    events: [
      {
        kind: settledBy.by === 'probe' ? 'effect.reconciled' : 'effect.resolved',
        effectId: effect.id,
        actor: request.actor,
        data: {
          outcome: request.outcome.kind,
          attempt: effect.attempt,
          ...(settledBy.by === 'resolve'
            ? { forced: settledBy.forced, comment: settledBy.comment, evidence: settledBy.evidence }
            : { evidence: settledBy.evidence }),
        },
      },
      ...(request.outcome.kind === 'happened'
        ? [
            {
              kind: 'receipt.issued' as const,
              effectId: effect.id,
              actor: request.actor,
              data: { receipt_id: request.outcome.receipt.id },
            },
          ]
        : []),
      ...released.events,
    ],
  };
}

function alreadySettled(effect: EffectRecord, request: ResolveRequest): Resolution {
  const { life } = effect;
  if (life.state !== 'committed' && life.state !== 'failed') return { kind: 'not_unknown', effect };
  if (life.settledBy.by !== 'resolve' && life.settledBy.by !== 'probe') return { kind: 'not_unknown', effect };
  const resolved = life.state === 'committed' ? 'happened' : 'not_happened';
  return resolved === request.outcome.kind ? { kind: 'unchanged', effect } : { kind: 'already_resolved', effect };
}

function refusedResolution(view: StepView, effect: EffectRecord, lease: Lease, why: LifeRefusal): Resolution {
  switch (why) {
    case 'too_early':
      return { kind: 'too_early', retryAfterMs: lease.quiesceUntil - view.now, effect };
    case 'fenced_off':
      return { kind: 'moved', effect };
    case 'not_allowed':
    case 'lease_alive':
    case 'unchanged':
    case 'contradiction':
      return { kind: 'not_unknown', effect };
  }
}

/**
 * Fixes when an unknown effect is probed next, and puts the reading before that on record. It is how a gateway takes a
 * probe upon itself, too: until that time no other finds it due.
 */
export function planProbeStep(view: StepView, request: AskedOf<'planProbe'>): Plan<AnswerOf<'planProbe'>> {
  const { workspace, effectId, fence, due, next, reading } = request;
  const events: readonly LedgerDraft[] =
    reading === null ? [] : [{ kind: 'effect.probed', effectId, actor: reading.actor, data: reading.data }];
  const effect = view.effect(workspace, effectId);
  const life = effect?.life;
  const isAsSeen =
    life?.state === 'unknown' &&
    sameFence(life.lease.fence, fence) &&
    (due === 'any' || (life.probeAt ?? 'unplanned') === due);
  if (effect === null || life === undefined || !isAsSeen) return { reply: 'moved', events };
  return {
    reply: 'planned',
    effects: [{ record: changed(effect, { life: { ...life, probeAt: next } }), binding: 'keep' }],
    events,
  };
}
