import { withoutContent } from '../model/without-content.ts';
import type { AskedOf, AnswerOf } from '../store.ts';
import { isUnsettled } from './lifecycle.ts';
import type { Plan, StepView } from './plan.ts';

/** Erases params, salts, and what else shows values. The receipt, with everything readable in it, stays unchanged. */
export function eraseStep(view: StepView, request: AskedOf<'erase'>): Plan<AnswerOf<'erase'>> {
  const { workspace, effectId, actor } = request;
  const effect = view.effect(workspace, effectId);
  if (effect === null) return { reply: { kind: 'absent' } };
  if (isUnsettled(effect.life.state)) return { reply: { kind: 'needed' } };
  const without = withoutContent(effect);
  if (effect.sealed === null && without === effect) return { reply: { kind: 'unchanged' } };
  return {
    reply: { kind: 'erased' },
    effects: [{ record: { ...without, sealed: null }, binding: 'keep' }],
    events: [{ kind: 'effect.erased', effectId, actor, data: {} }],
  };
}
