import { uptime } from 'node:os';
import { aheadMessage } from '../clock-jump.ts';

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
  /**
   * The server of a workspace was asked for its clock, with the time on record there (0: none).
   * @returns whether the record is to be written anew: nobody has written for long
   */
  look(workspace: string, record: number, time: number): boolean;
  /** A script did not believe the clock of the server of a workspace. */
  disbelieve(workspace: string, known: number, time: number): void;
  /** Why some server's clock is not believed, or `null`. */
  problem(): string | null;
}

/**
 * The record of the time may be this old before it is written anew, ms. While gateways run they count themselves; it is
 * for one that starts when none has run.
 */
const RECORD_MS = 10_000;

/** A time on record that is later than what was counted here by more than this is taken up, ms: less is the way there. */
const LATER_MS = 5000;

/**
 * @param clock a test's clock, in the place of the server's; it is believed
 * @param maxJumpMs how far a server's clock may be ahead of what is known
 */
export function createStoreTime(clock: (() => number) | undefined, maxJumpMs: number): StoreTime {
  /** Workspaces whose server's clock is not believed, with why. */
  const disbelieved = new Map<string, string>();
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

  function disbelieve(workspace: string, known: number, time: number): void {
    last = Math.max(last, known);
    // The first one said stands: the times in it go on, what is wrong does not.
    if (!disbelieved.has(workspace))
      disbelieved.set(workspace, aheadMessage({ whose: 'the Redis server', known, clock: time, maxJumpMs }));
  }

  return {
    disbelieve,
    look(workspace, record, time) {
      if (clock !== undefined || record === 0) return false;
      const expected = estimate();
      // On record stands only what was believed, or accepted by an operator.
      if (expected !== null && record > expected + LATER_MS) seen = { now: record, at: elapsed() };
      const known = Math.max(record, expected ?? last);
      if (time - known > maxJumpMs) disbelieve(workspace, known, time);
      else disbelieved.delete(workspace);
      return known - record > RECORD_MS || (!disbelieved.has(workspace) && time - record > RECORD_MS);
    },
    problem: () => [...disbelieved.values()][0] ?? null,
    now() {
      last = Math.max(last, Math.floor(clock?.() ?? estimate() ?? 0));
      return last;
    },
    observe(time) {
      last = Math.max(last, time);
      // Meanwhile a step has no other time than what was known: time goes on as it was counted here, or not at all.
      if (disbelieved.size === 0) seen = { now: time, at: elapsed() };
    },
    estimate,
    argument() {
      if (clock !== undefined) return String(Math.floor(clock()));
      const expected = estimate();
      const known = expected === null ? `?${last === 0 ? '' : last}` : `~${expected}`;
      return `${known}/${maxJumpMs}`;
    },
  };
}
