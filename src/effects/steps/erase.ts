import type { EffectRecord, Life } from '../model/effect.ts';
import type { EraseRequest, Erasure } from '../store.ts';
import type { Plan, StepView } from './plan.ts';

/** Erases params, salts and the kept answer. The receipt, with everything readable in it, stays unchanged. */
export function eraseStep(view: StepView, request: EraseRequest): Plan<Erasure> {
  const { workspace, effectId, actor } = request;
  const effect = view.effect(workspace, effectId);
  if (effect === null) return { reply: { kind: 'absent' } };
  if (isNeeded(effect.life)) return { reply: { kind: 'needed' } };
  if (effect.sealed === null && keptOf(effect.life) === null) return { reply: { kind: 'unchanged' } };
  const erased: EffectRecord = { ...effect, sealed: null, life: withoutResult(effect.life) };
  return {
    reply: { kind: 'erased' },
    effects: [{ record: erased, binding: 'keep' }],
    events: [{ kind: 'effect.erased', effectId, actor, data: {} }],
  };
}

function isNeeded({ state }: Life): boolean {
  return state === 'executing' || state === 'pending_approval' || state === 'unknown';
}

/** The answer that is kept in a state. */
export function keptOf(life: Life) {
  return life.state === 'committed' || life.state === 'failed' ? life.result : null;
}

function withoutResult(life: Life): Life {
  return life.state === 'committed' || life.state === 'failed' ? { ...life, result: null } : life;
}
