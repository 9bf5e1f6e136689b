import type { Reason } from './decision.ts';
import type { EffectRecord } from './effect.ts';

/** An effect without its answer, without values of the live state, and without texts that rules made of its params. */
export function withoutContent(effect: EffectRecord): EffectRecord {
  const { life } = effect;
  switch (life.state) {
    case 'committed':
    case 'failed':
      return life.result === null ? effect : { ...effect, life: { ...life, result: null } };
    case 'denied': {
      const reason = plainReason(life.reason);
      const isPlain = life.mismatches.length === 0 && reason.message === life.reason.message;
      return isPlain ? effect : { ...effect, life: { ...life, reason, mismatches: [] } };
    }
    case 'pending_approval':
    case 'rejected':
    case 'executing':
    case 'unknown':
      return effect;
  }
}

/** A reason without what a rule says in its own words: they can be made of params. */
export function plainReason(reason: Reason): Reason {
  const { code, rule } = reason;
  if (rule === undefined || (code !== 'rule_denied' && code !== 'policy_paused')) return reason;
  return { ...reason, message: `The rule ${rule} ${code === 'rule_denied' ? 'refuses' : 'pauses'} this call.` };
}
