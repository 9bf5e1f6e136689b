import { setImmediate as others } from 'node:timers/promises';

/** Work on the thread that answers calls is interrupted after this long, ms, so that calls are answered. */
const SLICE_MS = 1;

/**
 * Does work in small slices, so that calls are answered in between.
 * @param work yields wherever it may be interrupted
 * @param clock measures the time that the work takes
 */
export async function inSlices<Value>(
  work: Generator<void, Value>,
  clock: () => number = () => performance.now(),
  breathe: () => Promise<void> = () => others(),
): Promise<Value> {
  let begin = clock();
  for (;;) {
    const step = work.next();
    if (step.done === true) return step.value;
    if (clock() - begin < SLICE_MS) continue;
    await breathe();
    begin = clock();
  }
}
