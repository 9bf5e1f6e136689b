import { uptime } from 'node:os';
import { aheadMessage } from '../clock-jump.ts';

/** The store's clock: whole ms since the epoch, never goes back. */
export interface StoreClock {
  now(): number;
  /** How far the machine's clock is ahead of what is trusted, ms; 0 if it is not. As of the last `now`. */
  ahead(): number;
  /** An operator says that it is at least this late. */
  accept(time: number): void;
}

/** A step of the wall clock by more than this is checked: the machine slept, or somebody set the clock. */
const STEP_MS = 500;

/** Which part of the elapsed time may be added or left out to approach the wall clock. */
const SLEW = 0.05;

/**
 * Time follows the monotonic clock, beginning at `start`. Time that the machine slept is added at once. If the wall
 * clock was set forward or back, time only approaches it slowly, so that no lease ends early and time never stands
 * still. It does not approach a wall clock that is more than `maxJumpMs` ahead.
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

/** A clock of the caller, which is trusted, or a clock that this process had before and continues. */
export type ClockSource = (() => number) | StoreClock;

/** Makes a given clock keep the same promise. */
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

/** The time of a given clock, or of the machine if none is given. */
export function timeOf(source: ClockSource | null): number {
  if (source === null) return Date.now();
  return typeof source === 'function' ? source() : source.now();
}

/** The first time of a process that opens the store. */
export type Beginning =
  | { readonly kind: 'believed'; readonly time: number }
  | { readonly kind: 'ahead'; readonly message: string };

/**
 * Time has passed since the store was written: as much as the machine counted if it stayed up, else what its clock
 * says, up to a limit. A clock beyond the limit is not trusted: budgets would start again, and keys would be forgotten.
 * @param record the highest recorded time
 * @param counted what the time must be at least, from the machine's uptime; `null` if the machine was off meanwhile
 */
export function beginningOf(record: number, counted: number | null, wall: number, maxJumpMs: number): Beginning {
  const known = Math.max(record, Math.floor(counted ?? record));
  if (wall - known > maxJumpMs) return { kind: 'ahead', message: machineAhead(known, wall, maxJumpMs) };
  return { kind: 'believed', time: counted === null ? Math.max(known, wall) : known };
}

/** Says what is wrong with the machine's clock, for people. */
export function machineAhead(known: number, wall: number, maxJumpMs: number): string {
  return aheadMessage({ whose: 'this machine', known, clock: wall, maxJumpMs });
}
