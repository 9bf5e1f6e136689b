import { uptime } from 'node:os';

/** The machine slept for longer than this, ms: less is the coarseness of its clocks. */
const SLEPT_MS = 500;

/** The store's time as this gateway knows it: as last seen, plus what has gone by since. */
export interface StoreTime {
  /** ms since the epoch; never goes back. */
  now(): number;
  /** A step told its time. */
  observe(time: number): void;
  /** What the store's clock should say now, or `null` where none was seen. */
  estimate(): number | null;
  /** The time as an argument of scripts: the test's clock, or what the store's own is held against. */
  argument(): string;
}

/** @param clock a test's clock, in the place of the server's */
export function createStoreTime(clock: (() => number) | undefined): StoreTime {
  let seen: { readonly now: number; readonly at: number } | null = null;
  let last = 0;
  let slept = 0;
  const offset = uptime() * 1000 - performance.now();

  /** ms that go by, those that the machine slept included. */
  function elapsed(): number {
    const behind = uptime() * 1000 - performance.now() - offset;
    if (behind - slept > SLEPT_MS) slept = behind;
    return performance.now() + slept;
  }

  function estimate(): number | null {
    return clock !== undefined || seen === null ? null : Math.floor(seen.now + elapsed() - seen.at);
  }

  return {
    now() {
      last = Math.max(last, Math.floor(clock?.() ?? estimate() ?? 0));
      return last;
    },
    observe(time) {
      last = Math.max(last, time);
      seen = { now: time, at: elapsed() };
    },
    estimate,
    argument() {
      if (clock !== undefined) return String(Math.floor(clock()));
      const expected = estimate();
      return expected === null ? '' : `~${expected}`;
    },
  };
}
