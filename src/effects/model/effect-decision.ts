import type { Decision } from './decision.ts';
import type { EffectRecord } from './effect.ts';

/** The decision for an effect in its present state, as the first request would have got it. */
export function decisionOf(effect: EffectRecord): Decision {
  switch (effect.life.state) {
    case 'pending_approval':
      return 'pending_approval';
    case 'executing':
      return 'in_progress';
    case 'committed':
      return 'committed';
    case 'failed':
      return 'failed';
    case 'unknown':
      return 'unknown_effect';
    case 'rejected':
      return 'denied_policy';
    case 'denied':
      return effect.life.decision;
  }
}
