import { StoreUnavailable } from '../effects/store.ts';
import { within } from './exit-stack.ts';

/** What could not be taken on is tried again for a call after this long at the earliest, ms. */
const READ_AGAIN_MS = 1000;
/** A call waits so long for policies that are being taken on, ms. */
const WAIT_MS = 5000;

/**
 * Follows the policy in force: a stale admission names it. Limits stand in the store with it, so a gateway that has
 * another one admits nothing until it has taken on the one in force.
 * @param version of the policies that this gateway evaluates
 * @returns takes on the policies that another gateway has put in force, of this version as far as is known. It throws
 * StoreUnavailable where they cannot be taken on, or not in time, with the reason
 */
export function followPolicy(
  version: () => string,
  take: { readonly follow: () => Promise<void>; readonly hindrance: () => string | null },
  waitMs = WAIT_MS,
): (named: string | null) => Promise<void> {
  let inForce: string | null = null;
  let reading: Promise<void> | null = null;
  let last: { readonly wanted: string; readonly at: number } | null = null;

  return async (named) => {
    inForce = named ?? inForce;
    if (inForce === null || inForce === version()) return;
    const why = take.hindrance();
    const isNews = last === null || last.wanted !== inForce || performance.now() - last.at >= READ_AGAIN_MS;
    if (reading === null && (why === null || isNews)) {
      last = { wanted: inForce, at: performance.now() };
      reading = take.follow().finally(() => {
        reading = null;
      });
    }
    if (reading !== null && !(await within(reading, waitMs)))
      throw new StoreUnavailable('The policies in force in the store are still being taken on.');
    // What was named may be of before; whether it is, admission says.
    const hindrance = take.hindrance();
    if (inForce !== version() && hindrance !== null) throw new StoreUnavailable(hindrance);
  };
}
