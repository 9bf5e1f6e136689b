/** How far a clock may be ahead of the known time by default: as long as a holiday, not a season. */
export const MAX_CLOCK_JUMP_MS = 7 * 86_400_000;

/** Says what is wrong with a clock that is not trusted, for people. Times in ms. */
export function aheadMessage(seen: {
  readonly whose: 'this machine' | 'the Redis server';
  readonly known: number;
  readonly clock: number;
  readonly maxJumpMs: number;
}): string {
  const { whose, known, clock, maxJumpMs } = seen;
  const days = (ms: number): string => `${Math.round(ms / 8_640_000) / 10} days`;
  return (
    `The clock of ${whose} says ${new Date(clock).toISOString()}: ${days(clock - known)} after the last time that is known, ${new Date(known).toISOString()}, and store.max_clock_jump allows ${days(maxJumpMs)}. ` +
    'Nothing is admitted: budgets would begin anew, and keys that were used be forgotten. Set the clock right. If no gateway ran for so long, or the clock was behind until now, run: svc store accept-time --config FILE'
  );
}
