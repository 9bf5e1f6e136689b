import { uptime } from 'node:os';

/** The store's clock: whole ms since the epoch, never goes back. */
export type StoreClock = () => number;

/** A step of the wall clock by more than this is looked at: suspension, or somebody set the clock. */
const STEP_MS = 500;

/** How much of the elapsed time may be added or left out to come nearer to the wall clock. */
const SLEW = 0.05;

/**
 * Time runs by the monotonic clock from `start` on. Time that the machine slept is added at once. A wall clock that
 * was set forward or back is only approached, so that no lease ends early and no time stands still.
 * @param start no time before this is told: the highest time on record, ms
 */
export function createStoreClock(start: number): StoreClock {
  let wall = Date.now();
  let store = Math.max(start, wall);
  let monotonic = performance.now();
  let awake = uptime() * 1000 - monotonic;
  return () => {
    const monotonicNow = performance.now();
    const wallNow = Date.now();
    const elapsed = monotonicNow - monotonic;
    const stepped = wallNow - wall - elapsed;
    monotonic = monotonicNow;
    wall = wallNow;
    store += elapsed;
    if (Math.abs(stepped) > STEP_MS) {
      const awakeNow = uptime() * 1000 - monotonicNow;
      const slept = awakeNow - awake;
      if (slept > STEP_MS) {
        store += slept;
        awake = awakeNow;
      }
    }
    const behind = wallNow - store;
    const most = elapsed * SLEW;
    store += Math.max(-most, Math.min(most, behind));
    return Math.floor(store);
  };
}

/** A clock of the caller's, held to the same promise. */
export function wrapClock(start: number, source: () => number): StoreClock {
  let last = start;
  return () => {
    last = Math.max(last, Math.floor(source()));
    return last;
  };
}
