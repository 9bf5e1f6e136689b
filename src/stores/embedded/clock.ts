import { uptime } from 'node:os';
import { aheadMessage } from '../clock-jump.ts';

/** The store's clock: whole ms since the epoch, never goes back. */
export interface StoreClock {
  now(): number;
  /** By how much the machine's clock is further ahead than is believed, ms; 0 where it is not. As of the last `now`. */
  ahead(): number;
  /** An operator says that it is so late at least. */
  accept(time: number): void;
}

/** A step of the wall clock by more than this is looked at: suspension, or somebody set the clock. */
const STEP_MS = 500;

/** How much of the elapsed time may be added or left out to come nearer to the wall clock. */
const SLEW = 0.05;

/**
 * Time runs by the monotonic clock from `start` on. Time that the machine slept is added at once. A wall clock that
 * was set forward or back is only approached, so that no lease ends early and no time stands still; one that is
 * further ahead than `maxJumpMs` is not.
 * @param start ms
 */
export function createStoreClock(start: number, maxJumpMs: number): StoreClock {
  let wall = Date.now();
  let store = start;
  let monotonic = performance.now();
  let awake = uptime() * 1000 - monotonic;
  let ahead = 0;
  return {
    now() {
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
      ahead = behind > maxJumpMs ? behind : 0;
      const most = elapsed * SLEW;
      if (ahead === 0) store += Math.max(-most, Math.min(most, behind));
      return Math.floor(store);
    },
    ahead: () => ahead,
    accept(time) {
      store = Math.max(store, time);
    },
  };
}

/** A clock of the caller's, which is believed; or one that this process has had before, and goes on with. */
export type ClockSource = (() => number) | StoreClock;

/** A given clock, held to the same promise. */
export function wrapClock(start: number, source: ClockSource): StoreClock {
  let last = start;
  return {
    now() {
      last = Math.max(last, Math.floor(timeOf(source)));
      return last;
    },
    ahead: () => (typeof source === 'function' ? 0 : source.ahead()),
    accept(time) {
      last = Math.max(last, time);
      if (typeof source !== 'function') source.accept(time);
    },
  };
}

/** What a clock says, or the machine's where none is given. */
export function timeOf(source: ClockSource | null): number {
  if (source === null) return Date.now();
  return typeof source === 'function' ? source() : source.now();
}

/** Where time begins, for a process that opens the store. */
export type Beginning =
  | { readonly kind: 'believed'; readonly time: number }
  | { readonly kind: 'ahead'; readonly message: string };

/**
 * Since the store was written time has gone by: as much as the machine counted, where it is still up, and else what
 * its clock says, up to a bound. Beyond the bound nobody believes it: budgets would begin anew, and keys be forgotten.
 * @param record the highest time on record
 * @param counted what the time must be at least, by the machine's own count; `null` where it was off meanwhile
 */
export function beginningOf(record: number, counted: number | null, wall: number, maxJumpMs: number): Beginning {
  const known = Math.max(record, Math.floor(counted ?? record));
  if (wall - known > maxJumpMs) return { kind: 'ahead', message: machineAhead(known, wall, maxJumpMs) };
  return { kind: 'believed', time: counted === null ? Math.max(known, wall) : known };
}

/** What is wrong with the machine's clock, for people. */
export function machineAhead(known: number, wall: number, maxJumpMs: number): string {
  return aheadMessage({ whose: 'this machine', known, clock: wall, maxJumpMs });
}
