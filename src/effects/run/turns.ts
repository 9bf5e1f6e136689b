import { setImmediate as others } from 'node:timers/promises';

/** A call that was judged for so long without a break lets others have their turn, ms. */
const LONG_MS = 3;

/**
 * Lets others have their turn where a call has taken long: large params are gone through several times before they are
 * sent. Most calls take a fraction of this, and go on at once.
 * @param begun `elapsed` when others had their last turn
 */
export function turnOfOthers(elapsed: () => number, begun: number): Promise<void> | null {
  return elapsed() - begun < LONG_MS ? null : others();
}
