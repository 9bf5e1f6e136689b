import type { Dispatcher } from 'undici';

/** The part of undici's dispatcher that requests to MCP servers go through. */
export interface Through {
  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean;
  /** Lets what runs come to its end. */
  close(): Promise<void>;
  /** Ends it at once. */
  destroy(): Promise<void>;
}

const STREAM = { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' };

/**
 * One request into a pipe, in the form of HTTP, and its answer: whoever sends it need not know that there is no server
 * behind. The handler hears what it would hear of undici, in the same order.
 */
export class Exchange implements Dispatcher.DispatchController {
  readonly #handler: Dispatcher.DispatchHandler;
  readonly #onChange: () => void;
  #state: 'waiting' | 'started' | 'answering' | 'over' = 'waiting';
  #paused = false;
  #reason: Error | null = null;
  /** Headers of the answer beside its type. */
  headers: Readonly<Record<string, string>> = {};

  /** @param onChange is called when the reader pauses, reads again, or has left */
  constructor(handler: Dispatcher.DispatchHandler, onChange: () => void) {
    this.#handler = handler;
    this.#onChange = onChange;
  }

  get aborted(): boolean {
    return this.#reason !== null;
  }

  get paused(): boolean {
    return this.#paused;
  }

  get reason(): Error | null {
    return this.#reason;
  }

  get isOver(): boolean {
    return this.#state === 'over';
  }

  abort(reason: Error): void {
    if (this.isOver) return;
    this.#reason = reason;
    this.fail(reason);
  }

  pause(): void {
    this.#paused = true;
    this.#onChange();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#onChange();
  }

  /**
   * Asks whether it may be sent, in the turn in which it is.
   * @returns `false` where it may not: the handler has been told
   */
  start(): boolean {
    if (this.#state !== 'waiting') return false;
    try {
      this.#handler.onRequestStart?.(this, {});
    } catch (error) {
      this.fail(error instanceof Error ? error : new Error('held back'));
    }
    if (this.#state !== 'waiting') return false;
    this.#state = 'started';
    return true;
  }

  answer(status: number, body: Buffer | null): void {
    if (this.#state !== 'started') return;
    const type = body === null ? {} : { 'content-type': 'application/json', 'content-length': String(body.length) };
    this.#begin(status, { ...this.headers, ...type });
    if (body !== null) this.#handler.onResponseData?.(this, body);
    this.end();
  }

  /** Begins a stream of events, if it has not begun. */
  stream(): void {
    if (this.#state === 'started') this.#begin(200, { ...this.headers, ...STREAM });
  }

  /** An event of one message. A line of JSON holds no line break. */
  event(message: Buffer): void {
    this.stream();
    if (this.#state !== 'answering') return;
    this.#handler.onResponseData?.(
      this,
      Buffer.concat([Buffer.from('event: message\ndata: '), message, Buffer.from('\n\n')]),
    );
  }

  /** The last message: as a whole answer where nothing came before it. */
  last(message: Buffer): void {
    if (this.#state === 'started') return this.answer(200, message);
    this.event(message);
    this.end();
  }

  end(): void {
    if (this.#state !== 'answering') return;
    this.#over();
    this.#handler.onResponseEnd?.(this, {});
  }

  /** Breaks it off, as a connection breaks. */
  fail(error: Error): void {
    if (this.isOver) return;
    this.#over();
    this.#handler.onResponseError?.(this, error);
  }

  #begin(status: number, headers: Record<string, string>): void {
    this.#state = 'answering';
    this.#handler.onResponseStart?.(this, status, headers);
  }

  #over(): void {
    this.#state = 'over';
    this.#paused = false;
    this.#onChange();
  }
}
