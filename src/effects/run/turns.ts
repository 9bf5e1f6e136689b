import { setImmediate as others } from 'node:timers/promises';

/** After this long without a break, a call gives others their turn, ms. */
const LONG_MS = 3;

/**
 * Gives other calls their turn if this one has taken long. Large params are read several times before they are sent.
 * Most calls take a fraction of the limit and continue at once.
 * @param begun `elapsed` at the last turn of others
 */
export function turnOfOthers(elapsed: () => number, begun: number): Promise<void> | null {
  return elapsed() - begun < LONG_MS ? null : others();
}
