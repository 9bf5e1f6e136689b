import type { EffectRecord } from '../model/effect.ts';
import { advance } from './lifecycle.ts';
import type { Plan, StepView } from './plan.ts';
import { release } from './give-back.ts';

/**
 * Declares an attempt lost whose lease is over, or whose owner is known to be dead. The effect becomes unknown. Its
 * holds stay; its claims and units stay until its quiet time is over.
 * @returns what to write, or `null` when there is nothing to declare
 */
export function loseLeaseStep(view: StepView, effect: EffectRecord, ownerDead: boolean): Plan<EffectRecord> | null {
  const step = advance(effect, { kind: 'lose', at: view.now, ownerDead });
  if (step.kind === 'refused' || step.effect.life.state !== 'unknown') return null;
  const { lease } = step.effect.life;
  const released = release(view, step.effect, 'keep', lease.quiesceUntil);
  return {
    ...released.plan,
    reply: released.effect,
    effects: [{ record: released.effect, binding: 'keep' }],
    events: [
      {
        kind: 'execution.lost',
        effectId: effect.id,
        actor: { type: 'gateway', id: 'sweeper' },
        data: {
          attempt: effect.attempt,
          code: 'lease_over',
          owner_ended: ownerDead,
          quiet_at: new Date(lease.quiesceUntil).toISOString(),
        },
      },
    ],
  };
}
