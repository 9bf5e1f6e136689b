/** How often something is measured before it counts as too slow. */
const MEASURED = 3;

/**
 * The least of up to three times, ms, or of other measures; as few as it takes to stay below `limit`. A machine that stands
 * still for a moment makes one of them long, and says nothing of the gateway; a gateway that is too slow is so each time.
 * @param measure is given which time it is, from 0
 */
export async function shortest(limit: number, measure: (time: number) => Promise<number> | number): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let time = 0; time < MEASURED && best >= limit; time += 1) best = Math.min(best, await measure(time));
  return best;
}
