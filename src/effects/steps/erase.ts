import type { EffectRecord, Life } from '../model/effect.ts';
import type { AskedOf, AnswerOf } from '../store.ts';
import { isUnsettled } from './lifecycle.ts';
import type { Plan, StepView } from './plan.ts';

/** Erases params, salts and the kept answer. The receipt, with everything readable in it, stays unchanged. */
export function eraseStep(view: StepView, request: AskedOf<'erase'>): Plan<AnswerOf<'erase'>> {
  const { workspace, effectId, actor } = request;
  const effect = view.effect(workspace, effectId);
  if (effect === null) return { reply: { kind: 'absent' } };
  if (isUnsettled(effect.life.state)) return { reply: { kind: 'needed' } };
  if (effect.sealed === null && keptOf(effect.life) === null) return { reply: { kind: 'unchanged' } };
  const erased: EffectRecord = { ...effect, sealed: null, life: withoutResult(effect.life) };
  return {
    reply: { kind: 'erased' },
    effects: [{ record: erased, binding: 'keep' }],
    events: [{ kind: 'effect.erased', effectId, actor, data: {} }],
  };
}

export function keptOf(life: Life) {
  return life.state === 'committed' || life.state === 'failed' ? life.result : null;
}

function withoutResult(life: Life): Life {
  return life.state === 'committed' || life.state === 'failed' ? { ...life, result: null } : life;
}
