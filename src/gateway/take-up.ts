import { setTimeout as delay } from 'node:timers/promises';
import { StoreUnavailable } from '../effects/store.ts';

/** How often work that waits for the store is tried again, ms. */
const AGAIN_MS = 250;

/** Does what the gateway needs in the store as soon as that can be reached, and repeats it until it succeeds. */
export class TakeUp {
  readonly #work;
  readonly #report;
  #done = false;
  readonly #stopped = new AbortController();
  #finish: () => void = () => undefined;
  /** Resolves once the work is done, which may be never. */
  readonly finished;
  #running = Promise.resolve();

  constructor(work: () => Promise<void>, report: (error: unknown) => void) {
    this.#work = work;
    this.#report = report;
    this.finished = new Promise<void>((resolve) => {
      this.#finish = resolve;
    });
  }

  /** The first try. @throws what the work throws. If only the store is missing, it does not throw and keeps trying */
  async begin(): Promise<void> {
    try {
      await this.#work();
      this.#done = true;
      this.#finish();
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      this.#running = this.#goOn();
    }
  }

  isDone(): boolean {
    return this.#done;
  }

  stop(): Promise<void> {
    this.#stopped.abort();
    return this.#running;
  }

  async #goOn(): Promise<void> {
    while (!this.#done && !this.#stopped.signal.aborted) {
      await delay(AGAIN_MS, undefined, { signal: this.#stopped.signal }).catch(() => undefined);
      if (this.#stopped.signal.aborted) return;
      try {
        await this.#work();
        this.#done = true;
        this.#finish();
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) this.#report(error);
      }
    }
  }
}
