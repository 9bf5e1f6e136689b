import { StoreUnavailable } from '../effects/store.ts';

/** How often work that waits for the store is tried again, ms. */
const AGAIN_MS = 250;

/** What has to be done in the store before the gateway can work, and whether it is done. */
export interface TakeUp {
  /** The first try. @throws what the work throws. If only the store is missing, it does not throw and keeps trying */
  begin(): Promise<void>;
  isDone(): boolean;
  /** Resolves once the work is done, which may be never. */
  readonly finished: Promise<void>;
  stop(): Promise<void>;
}

/**
 * Does the work as soon as the store can be reached, and repeats it until it succeeds.
 * @param report called with whatever stops the work, except a missing store
 */
export function createTakeUp(work: () => Promise<void>, report: (error: unknown) => void): TakeUp {
  let done = false;
  let stopped = false;
  let wake: () => void = () => undefined;
  let finish: () => void = () => undefined;
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  let running = Promise.resolve();

  async function goOn(): Promise<void> {
    while (!done && !stopped) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, AGAIN_MS);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      if (stopped) return;
      try {
        await work();
        done = true;
        finish();
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) report(error);
      }
    }
  }

  return {
    async begin() {
      try {
        await work();
        done = true;
        finish();
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        running = goOn();
      }
    },
    isDone: () => done,
    finished,
    stop() {
      stopped = true;
      wake();
      return running;
    },
  };
}
