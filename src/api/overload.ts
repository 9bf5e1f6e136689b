import { monitorEventLoopDelay } from 'node:perf_hooks';

/** Requests are refused if the event loop was late by this much on average over a second, ms. One long pause is no overload. */
const MAX_EVENT_LOOP_DELAY_MS = 750;
/** Connections with a request under way beyond which requests are refused as soon as the event loop is {@link LATE_MS} late. */
const MOST_WHILE_LATE = 128;
/** How late the event loop is, or how long it takes up new requests in one turn, for it to be late, ms. */
const LATE_MS = 100;
/** A request has this long to arrive, and the next look at those that did not, ms. */
const LATE_REMEMBERED_MS = 15_000;
/** Samples of the first two seconds are ignored, ms: they measure the start-up work, not load. */
const MEASURED_AFTER_MS = 2_000;
const SAMPLE_MS = 1_000;
const RESOLUTION_MS = 10;

/** Whether the process has more work than it can do. */
export interface Overload {
  /**
   * Whether a request that arrives now is to be refused. What was accepted before it is then carried through: all of
   * them together would be slower than callers wait, and none would come to its end.
   */
  isOverloaded(): boolean;
  /** Whether the event loop was late for so long that a request may have waited unread. */
  wasLate(): boolean;
  /** Earlier samples belong to the start. */
  started(): void;
  close(): void;
}

/**
 * Measures how late the event loop runs. It opens no file, so it works even if the process has no descriptors left.
 * @param underWay connections with a request under way
 */
export function measureOverload(underWay: { readonly size: number }): Overload {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  let delay = 0;
  let startedAt = performance.now();
  /** When the delay was last beyond what is borne. */
  let lateAt = Number.NEGATIVE_INFINITY;
  const timer = setInterval(() => {
    const { mean } = histogram;
    // No sample in a second means that the loop was blocked for the whole second.
    delay = Number.isNaN(mean) ? Number.POSITIVE_INFINITY : mean / 1e6 - RESOLUTION_MS;
    if (delay > LATE_MS) lateAt = performance.now();
    histogram.reset();
  }, SAMPLE_MS).unref();

  /** The turn of the event loop that takes up requests beyond {@link MOST_WHILE_LATE}: since when, and until when it is late. */
  let turnBegan: number | null = null;
  let lateUntil = Number.NEGATIVE_INFINITY;
  const takesLong = (now: number): boolean => {
    if (turnBegan === null) {
      turnBegan = now;
      setImmediate(() => (turnBegan = null));
    } else if (now - turnBegan > LATE_MS) lateUntil = now + SAMPLE_MS;
    return now < lateUntil;
  };

  return {
    isOverloaded() {
      if (underWay.size < MOST_WHILE_LATE && delay <= MAX_EVENT_LOOP_DELAY_MS) return false;
      const now = performance.now();
      if (now - startedAt <= MEASURED_AFTER_MS) return false;
      return delay > MAX_EVENT_LOOP_DELAY_MS || takesLong(now) || delay > LATE_MS;
    },
    wasLate: () => performance.now() - lateAt < LATE_REMEMBERED_MS,
    started: () => {
      startedAt = performance.now();
    },
    close: () => {
      clearInterval(timer);
      histogram.disable();
    },
  };
}
