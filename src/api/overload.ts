import { monitorEventLoopDelay } from 'node:perf_hooks';

/**
 * Requests are shed if the event loop was late by this much on average over a second, ms. One long pause is no
 * overload.
 */
const MAX_EVENT_LOOP_DELAY_MS = 750;
/** Samples of the first two seconds are ignored, ms: they measure the start-up work, not load. */
const MEASURED_AFTER_MS = 2_000;
const SAMPLE_MS = 1_000;
const RESOLUTION_MS = 10;

/** Whether the process has more work than it can do. */
export interface Overload {
  isOverloaded(): boolean;
  /** Earlier samples belong to the start. */
  started(): void;
  close(): void;
}

/** Measures how late the event loop runs. It opens no file, so it works even if the process has no descriptors left. */
export function measureOverload(): Overload {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  let delay = 0;
  let startedAt = performance.now();
  const timer = setInterval(() => {
    const { mean } = histogram;
    // No sample in a second means that the loop was blocked for the whole second.
    delay = Number.isNaN(mean) ? Number.POSITIVE_INFINITY : mean / 1e6 - RESOLUTION_MS;
    histogram.reset();
  }, SAMPLE_MS).unref();
  return {
    isOverloaded: () => delay > MAX_EVENT_LOOP_DELAY_MS && performance.now() - startedAt > MEASURED_AFTER_MS,
    started: () => {
      startedAt = performance.now();
    },
    close: () => {
      clearInterval(timer);
      histogram.disable();
    },
  };
}
