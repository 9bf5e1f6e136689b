import { performance } from 'node:perf_hooks';
import { setImmediate as others } from 'node:timers/promises';

/** A part takes about this long, ms. */
const PART_MS = 2;

/** What a part costs besides its own time: its request, its answer, and what the store sends for it, ms. */
const OVERHEAD_MS = 0.5;

/** After a part, the thread is left alone for this many times as long: while calls run, and while next to nothing does. */
const PAUSE_BUSY = 9;
const PAUSE_CALM = 1;

/** From this share of the thread on, others are busy with it. */
const BUSY = 0.2;

/**
 * What people read is made in parts with pauses in between, one part at a time for all of them. So calls keep nine
 * tenths of the thread, however many people read.
 */
export type ReadingTurns = ReturnType<typeof createReadingTurns>;

/** The thread's clock and use, and what waits on it; others in tests. */
export type Thread = ReturnType<typeof thisThread>;

/** For what is not read for people, or where nothing else has to be kept going: all at once. */
export const AT_ONCE: ReadingTurns = { run: async (part) => part(), map: async (items, make) => items.map(make) };

export function createReadingTurns(thread: Thread = thisThread()) {
  let waiting: (() => void)[] = [];
  let next = 0;
  let isServing = false;

  function serve(): void {
    const part = waiting[next];
    next += 1;
    if (part === undefined) {
      waiting = [];
      next = 0;
      isServing = false;
      return;
    }
    const pause = thread.used() < BUSY ? PAUSE_CALM : PAUSE_BUSY;
    const begun = thread.now();
    part();
    const cost = thread.now() - begun + OVERHEAD_MS;
    thread.used();
    thread.after(cost * pause, serve);
  }

  function run<T>(part: () => T | Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      waiting.push(() => {
        try {
          resolve(part());
        } catch (error) {
          reject(error);
        }
      });
      if (isServing) return;
      isServing = true;
      thread.after(0, serve);
    });
  }

  return {
    /** Runs one part in its turn. It should take a few ms at most. */
    run,
    /** Makes something of each item, in order, in parts. */
    async map<Item, Made>(items: readonly Item[], make: (item: Item) => Made): Promise<Made[]> {
      const made: Made[] = [];
      const left = items.values();
      const makeSome = (): void => {
        const until = thread.now() + PART_MS;
        for (let next = left.next(); next.done !== true; next = left.next()) {
          made.push(make(next.value));
          if (thread.now() >= until) return;
        }
      };
      while (made.length < items.length) await run(makeSome);
      return made;
    },
  };
}

function thisThread() {
  let last = performance.eventLoopUtilization();
  return {
    /** ms. */
    now: (): number => performance.now(),
    /** The share of time in which the thread worked since the last call. */
    used(): number {
      const current = performance.eventLoopUtilization();
      const { utilization } = performance.eventLoopUtilization(current, last);
      last = current;
      return utilization;
    },
    after(ms: number, work: () => void): void {
      if (ms < 1) setImmediate(work);
      else setTimeout(work, ms);
    },
  };
}

/** After this long without a break, a call gives others their turn, ms. */
const LONG_MS = 3;

/**
 * Gives other calls their turn if this one has taken long. Large params are read several times before they are sent.
 * Most calls take a fraction of the limit and continue at once.
 * @param begun `elapsed` at the last turn of others
 */
export function turnOfOthers(elapsed: () => number, begun: number): Promise<void> | null {
  return elapsed() - begun < LONG_MS ? null : others();
}
