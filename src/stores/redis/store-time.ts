import { uptime } from 'node:os';

/** The machine slept for longer than this, ms: less is the coarseness of its clocks. */
const SLEPT_MS = 500;

/** Asking the system how long it is up costs as much as a script's arguments: it is asked this often, ms. */
const ASKED_EVERY_MS = 100;

/** … and at once where the wall clock has gone ahead of, or behind, the one that stands still in sleep, ms. */
const WALL_MS = 100;

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
  let asked = { at: -ASKED_EVERY_MS, wall: 0 };

  /** ms that go by, those that the machine slept included. */
  function elapsed(): number {
    const at = performance.now();
    const wall = Date.now() - at;
    if (at - asked.at >= ASKED_EVERY_MS || Math.abs(wall - asked.wall) > WALL_MS) {
      asked = { at, wall };
      const behind = uptime() * 1000 - at - offset;
      if (behind - slept > SLEPT_MS) slept = behind;
    }
    return at + slept;
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
