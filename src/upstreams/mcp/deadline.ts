/**
 * The time that a call has. `AbortSignal.timeout` would keep its timer, and whatever hangs on it, until the time is over,
 * also for calls that were answered at once.
 */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #caller: AbortSignal | null;
  readonly #giveUp = (): void => this.#controller.abort();
  #isOver = false;

  /** @param caller aborts too: whoever asked does not want the answer any more */
  constructor(ms: number, caller: AbortSignal | null) {
    this.#caller = caller;
    this.#timer = setTimeout(() => {
      this.#isOver = true;
      this.#giveUp();
    }, ms).unref();
    if (caller?.aborted === true) this.#giveUp();
    caller?.addEventListener('abort', this.#giveUp, { once: true });
  }

  /** Aborts when the time is over, or when the caller gives up. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** The call has ended: nothing is aborted any more. */
  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener('abort', this.#giveUp);
  }
}
