import type { LedgerDraft } from '../model/ledger.ts';
import type { PlanProbeRequest } from '../store.ts';
import { changed, sameFence } from './lifecycle.ts';
import type { Plan, StepView } from './plan.ts';

/**
 * Fixes when an unknown effect is probed next, and puts the reading before that on record. It is how a gateway takes a
 * probe upon itself, too: until that time no other finds it due.
 */
export function planProbeStep(view: StepView, request: PlanProbeRequest): Plan<'planned' | 'moved'> {
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
