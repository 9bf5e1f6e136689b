import { readFileSync } from 'node:fs';
import { uptime } from 'node:os';
import { aheadMessage } from '../clock-jump.ts';

/** The store's clock: whole ms since the epoch, never goes back. */
export interface StoreClock {
  now(): number;
  /** How far the machine's clock is ahead of what is trusted, ms; 0 if it is not. As of the last `now`. */
  ahead(): number;
  /** It is at least this late: an operator says so, or the store. */
  accept(time: number): void;
  /** What to record for the next process; `null` if it cannot be found again. */
  seen(): TimeSeen | null;
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

  function now(): number {
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
    const lag = wallNow - store;
    ahead = lag > maxJumpMs ? lag : 0;
    const most = elapsed * SLEW;
    if (ahead === 0) store += Math.max(-most, Math.min(most, lag));
    return Math.floor(store);
  }

  return {
    now,
    ahead: () => ahead,
    accept(time) {
      store = Math.max(store, time);
    },
    seen: () => noteTime(now()),
  };
}

/** A clock of the caller, which is trusted. */
export function trustedClock(source: () => number): StoreClock {
  let last = 0;
  const accept = (time: number): void => {
    last = Math.max(last, Math.floor(time));
  };
  return {
    now() {
      accept(source());
      return last;
    },
    ahead: () => 0,
    accept,
    seen: () => null,
  };
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
export function beginningOf(record: number, counted: number | null, maxJumpMs: number): Beginning {
  const wall = Date.now();
  const known = Math.max(record, Math.floor(counted ?? record));
  if (wall - known > maxJumpMs) return { kind: 'ahead', message: machineAhead(known, wall, maxJumpMs) };
  return { kind: 'believed', time: counted === null ? Math.max(known, wall) : known };
}

/** Says what is wrong with the machine's clock, for people. */
export function machineAhead(known: number, wall: number, maxJumpMs: number): string {
  return aheadMessage({ whose: 'this machine', known, clock: wall, maxJumpMs });
}

/** The store's time at a moment that can be found again from the machine's uptime, as long as the machine stays up. */
export interface TimeSeen {
  /** Identifies the start of the machine. */
  readonly boot: string;
  /** How long it had been up, ms, including the time that it slept. */
  readonly upMs: number;
  readonly time: number;
}

/** Records the store's time with the machine's uptime; `null` if the system does not identify its start. */
function noteTime(time: number): TimeSeen | null {
  const boot = bootOfMachine();
  return boot === null ? null : { boot, upMs: Math.round(uptime() * 1000), time };
}

/** What the time is now, from the uptime since it was recorded; `null` if the machine was off since. */
export function countFrom(seen: TimeSeen | null): number | null {
  if (seen === null || seen.boot !== bootOfMachine()) return null;
  const elapsed = uptime() * 1000 - seen.upMs;
  // Less than before: the machine was restored from an earlier snapshot.
  return elapsed < 0 ? null : seen.time + elapsed;
}

function bootOfMachine(): string | null {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return null;
  }
}
