import { uptime } from 'node:os';
import { aheadMessage } from '../clock-jump.ts';

/**
 * If its clocks differ by more than this, the machine slept, ms. Smaller differences come from the clocks' resolution.
 */
const SLEPT_MS = 500;

/** Reading the uptime from the system costs as much as a script's arguments, so it is read only this often, ms. */
const ASKED_EVERY_MS = 100;

/** It is also read at once if the wall clock and the clock that stops during sleep differ by more than this, ms. */
const WALL_MS = 100;

/** The store's time as this gateway knows it: the last seen time plus the time that has passed since. */
export interface StoreTime {
  /** ms since the epoch; never goes back. */
  now(): number;
  /** A step returned its time. */
  observe(time: number): void;
  /** A script refused a step as late: the server's clock says this. */
  late(time: number): void;
  /** What the store's clock should say now; `null` if no time was seen. */
  estimate(): number | null;
  /** The time argument of scripts: the test's clock, or the time against which the server's clock is checked. */
  argument(): string;
  /**
   * The server of a workspace returned its clock, and the recorded time there (0: none).
   * @returns whether the record should be renewed, because nobody has written for long
   */
  isStale(workspace: string, record: number, time: number): boolean;
  /** A script did not trust the clock of the server of a workspace. */
  disbelieve(workspace: string, known: number, time: number): void;
  /** Why some server's clock is not trusted, or `null`. */
  problem(): string | null;
}

/**
 * How old the recorded time may be before it is renewed, ms. Running gateways count the time themselves; the record is
 * for a gateway that starts when none has been running.
 */
const RECORD_MS = 10_000;

/**
 * A recorded time that is later than the time counted here by more than this is accepted, ms. Smaller differences come
 * from the network.
 */
const LATER_MS = 5000;

/**
 * @param clock a test's clock, which replaces the server's and is trusted
 * @param maxJumpMs how far a server's clock may be ahead of the known time
 */
export function createStoreTime(clock: (() => number) | undefined, maxJumpMs: number): StoreTime {
  /** Workspaces whose server's clock is not trusted, with the reason. */
  const disbelieved = new Map<string, string>();
  let seen: { readonly now: number; readonly at: number } | null = null;
  let last = 0;
  let told = '';
  let slept = 0;
  const offset = uptime() * 1000 - performance.now();
  let asked = { at: -ASKED_EVERY_MS, wall: 0 };

  /** Elapsed ms, including the time that the machine slept. */
  function elapsed(): number {
    const at = performance.now();
    const wall = Date.now() - at;
    if (at - asked.at >= ASKED_EVERY_MS || Math.abs(wall - asked.wall) > WALL_MS) {
      asked = { at, wall };
      const lag = uptime() * 1000 - at - offset;
      if (lag - slept > SLEPT_MS) slept = lag;
    }
    return at + slept;
  }

  function estimate(): number | null {
    return clock !== undefined || seen === null ? null : Math.floor(seen.now + elapsed() - seen.at);
  }

  function disbelieve(workspace: string, known: number, time: number): void {
    last = Math.max(last, known);
    // Keep the first message: its times would change all the time, but the fault does not.
    if (!disbelieved.has(workspace))
      disbelieved.set(workspace, aheadMessage({ whose: 'the Redis server', known, clock: time, maxJumpMs }));
  }

  return {
    disbelieve,
    isStale(workspace, record, time) {
      if (clock !== undefined || record === 0) return false;
      const expected = estimate();
      // The record only contains times that were trusted, or accepted by an operator.
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
      // Meanwhile steps only have the known time: time continues as it was counted here, or not at all.
      if (disbelieved.size === 0) seen = { now: time, at: elapsed() };
    },
    late(time) {
      told = `/${time}`;
    },
    estimate,
    argument() {
      if (clock !== undefined) return String(Math.floor(clock()));
      const expected = estimate();
      const known = expected === null ? `?${last === 0 ? '' : last}` : `~${expected}`;
      return `${known}/${maxJumpMs}${told}`;
    },
  };
}
