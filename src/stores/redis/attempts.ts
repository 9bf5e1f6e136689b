import type { EffectRecord } from '../../effects/model/effect.ts';
import { passingMap } from '../passing-map.ts';

/** Attempts that are remembered at most; of one that is not, the store sends the documents again. */
const REMEMBERED = 10_000;

/**
 * Attempts that this gateway admitted and has not settled yet, as they were admitted: what the store need not send back
 * when they are.
 */
export interface Attempts {
  admitted(effect: EffectRecord): void;
  /** The effect as it was admitted under a nonce, once. */
  take(nonce: string): EffectRecord | null;
}

export function createAttempts(): Attempts {
  const open = passingMap<string, EffectRecord>();
  return {
    admitted(effect) {
      if (effect.life.state !== 'executing') return;
      const [oldest] = open.size >= REMEMBERED ? open : [];
      if (oldest !== undefined) open.delete(oldest[0]);
      open.set(effect.life.lease.fence.nonce, effect);
    },
    take(nonce) {
      const effect = open.get(nonce) ?? null;
      open.delete(nonce);
      return effect;
    },
  };
}
