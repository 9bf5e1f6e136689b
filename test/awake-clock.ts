/** How often it looks, and what it counts at most from one look to the next, ms. */
const EVERY_MS = 10;
const MOST_MS = 50;

let counted = 0;
let lastLook = performance.now();
setInterval(awakeMs, EVERY_MS).unref();

/**
 * Time for which this process could run, ms. It goes on with the clock, but for what the machine takes away: while all
 * stands still, or others have the processors, nothing that is measured here could get on either.
 */
export function awakeMs(): number {
  const now = performance.now();
  counted += Math.min(now - lastLook, MOST_MS);
  lastLook = now;
  return counted;
}
