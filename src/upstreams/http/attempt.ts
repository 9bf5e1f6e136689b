import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Dispatcher } from 'undici';
import { Gathered } from '../../bytes/gathered.ts';
import { PIECES_A_TURN } from '../../bytes/pieces-a-turn.ts';
import type { Tool } from '../../effects/model/tool.ts';
import { ownedStream } from '../owned-stream.ts';
import type { IncomingHeaders } from './answer.ts';
import { ANNOUNCED_TOO_OFTEN, MOST_ANNOUNCEMENTS } from './announcements.ts';
import type { Connection } from './connections.ts';
import type { SentBody } from './sent-body.ts';
import { MAY_BE_REFUSED } from './tls-faults.ts';

export type Attempt =
  | { readonly kind: 'held_back'; readonly by: 'late' | 'paused' }
  | { readonly kind: 'nothing_sent'; readonly message: string }
  | {
      readonly kind: 'answer';
      readonly status: number;
      readonly headers: IncomingHeaders;
      readonly body: Buffer;
      readonly whole: boolean;
      readonly startedAt: number;
    }
  | {
      /** An answer whose bytes went to {@link Passing}. */
      readonly kind: 'passed_on';
      readonly status: number;
      readonly headers: IncomingHeaders;
      /** Why it is not whole; `null` if it is. */
      readonly broke: { readonly code: 'timeout' | 'reset' | 'too_long'; readonly message: string } | null;
      readonly startedAt: number;
    }
  | {
      readonly kind: 'lost';
      readonly code: 'timeout' | 'reset' | 'malformed';
      readonly message: string;
      readonly startedAt: number;
    };

export interface AttemptRequest {
  readonly method: string;
  readonly pathAndQuery: string;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | SentBody | null;
}

/** Takes answers that are passed on while they come. */
export interface Passing {
  /** Asked once, when the head of the answer has come: whether its body is passed on. */
  begin(status: number, headers: IncomingHeaders): boolean;
  /** Takes a piece. The connection is not read until the promise that it may return is over. */
  write(piece: Buffer): Promise<void> | undefined;
}

export interface AttemptOptions {
  readonly gate: () => 'go' | 'late' | 'paused';
  /**
   * From the first byte written to the last one read, ms. For tools whose answers are streams: to the head of the
   * answer, and from each piece to the next.
   */
  readonly timeoutMs: number;
  /** Only for tools whose answers are streams. */
  readonly stream: NonNullable<Tool['streams']> | null;
  /** `null`: the answer is collected. */
  readonly passing: Passing | null;
  /** The most bytes of an answer that are read. */
  readonly responseBytes: number;
  readonly now: () => number;
}

class HeldBack extends Error {}
class NotAgain extends Error {}
class GivenUp extends Error {}

/**
 * Sends one request on one connection, once, and reads its answer.
 * @param released called once the connection can carry another request
 * @param read makes of the outcome what the caller waits for
 */
export function attempt<Result>(
  connection: Connection,
  request: AttemptRequest,
  options: AttemptOptions,
  released: (connection: Connection) => void,
  read: (outcome: Attempt) => Result,
): Promise<Result> {
  return new Promise((resolve, reject) => {
    const settled = (outcome: Attempt): void => {
      try {
        resolve(read(outcome));
      } catch (error) {
        reject(error);
      }
    };
    new Sending(connection, options, released, settled).dispatch(request);
  });
}

/**
 * undici calls `onRequestStart` in the same turn of the event loop in which it writes, even for a request that waited
 * for its connection. Nothing runs in between, so what the gate says there is still true for the write. A throw there
 * stops the request before any byte is written. If the body comes in pieces, undici writes the head with the first
 * piece, so the gate is asked again then.
 */
class Sending implements Dispatcher.DispatchHandler {
  readonly #connection: Connection;
  readonly #options: AttemptOptions;
  readonly #released: (connection: Connection) => void;
  readonly #resolve: (result: Attempt) => void;
  #startedAt: number | null = null;
  #socket: Socket | null = null;
  /** The counter of the socket before the request. */
  #before: number | undefined;
  #wrote = false;
  #timer: NodeJS.Timeout | null = null;
  #wholeTimer: NodeJS.Timeout | null = null;
  #isPassedOn = false;
  /** The caller has not taken the last piece yet. Nothing is read meanwhile, so silence means nothing. */
  #isHeldUp = false;
  #heldBack: 'late' | 'paused' | null = null;
  #status: number | null = null;
  #headers: IncomingHeaders = {};
  #body: Buffer | null = null;
  /** The pieces after the first. */
  #more: Gathered | null = null;
  #length = 0;
  /** Pieces that were passed on. */
  #pieces = 0;
  #announcements = 0;
  #settled = false;

  constructor(
    connection: Connection,
    options: AttemptOptions,
    released: (connection: Connection) => void,
    resolve: (result: Attempt) => void,
  ) {
    this.#connection = connection;
    this.#options = options;
    this.#released = released;
    this.#resolve = resolve;
  }

  dispatch({ pathAndQuery, method, headers, body }: AttemptRequest): void {
    try {
      this.#connection.client.dispatch(
        {
          path: pathAndQuery,
          method,
          headers,
          body: body === null || Buffer.isBuffer(body) ? body : ownedStream(this.#gated(body)),
          idempotent: false,
        },
        this,
      );
    } catch (error) {
      // undici checks the request before it queues it.
      this.#settle({
        kind: 'nothing_sent',
        message: error instanceof Error ? error.message : 'the request is not valid',
      });
      this.#released(this.#connection);
    }
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // undici should start a request only once. If it ever starts one again, this stops it.
    if (this.#startedAt !== null) throw new NotAgain();
    this.#ask();
    const { now, timeoutMs, stream } = this.#options;
    this.#startedAt = now();
    this.#socket = this.#connection.socket;
    this.#before = this.#socket?.bytesWritten;
    this.#wrote = this.#before === undefined;
    // undici writes in this turn. When the turn is over, the counter includes what it wrote.
    process.nextTick(Sending.#noteWritten, this);
    this.#timer = setTimeout(onSilence, timeoutMs, this, controller);
    if (stream !== null)
      this.#wholeTimer = setTimeout(
        () => this.#giveUp(controller, `the answer was not over after ${stream.totalMs} ms`),
        stream.totalMs,
      );
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: IncomingHeaders): void {
    this.#connection.hasAnswered = true;
    if (status < 200) {
      this.#announcements += 1;
      if (this.#announcements <= MOST_ANNOUNCEMENTS || this.#settled) return;
      this.#lost('malformed', ANNOUNCED_TOO_OFTEN);
      this.#reset(controller);
      return;
    }
    this.#status = status;
    this.#headers = headers;
    const { passing, stream } = this.#options;
    if (!this.#settled && passing !== null) this.#isPassedOn = passing.begin(status, headers);
    if (stream !== null) this.#timer?.refresh();
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled) return;
    if (this.#options.stream !== null) this.#timer?.refresh();
    if (this.#isPassedOn) {
      this.#passPiece(controller, chunk);
      return;
    }
    const room = this.#options.responseBytes - this.#length;
    const isTooLong = chunk.byteLength > room;
    const piece = isTooLong ? chunk.subarray(0, room) : chunk;
    this.#length += piece.byteLength;
    if (this.#body === null) this.#body = piece;
    else (this.#more ??= new Gathered()).add(piece);
    if (!isTooLong) return;
    this.#answered(false);
    this.#reset(controller);
  }

  onResponseEnd(): void {
    if (this.#isPassedOn) this.#passedOn(isFramed(this.#headers) ? null : UNFRAMED);
    else this.#answered(true);
    this.#released(this.#connection);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#heldBack !== null) this.#settle({ kind: 'held_back', by: this.#heldBack });
    else if (this.#startedAt === null) this.#settle({ kind: 'nothing_sent', message: error.message });
    // Judged by bytes, never by the error: the counter of the socket did not move, so nothing was sent.
    else if (!this.#hasWritten()) {
      this.#settle({ kind: 'nothing_sent', message: 'the connection was gone before a byte was written' });
    } else if (isMalformed(error)) this.#lost('malformed', 'the upstream sent something that is not HTTP');
    else this.#lost('reset', brokenWords(this.#connection));
    this.#released(this.#connection);
  }

  /** Once the turn is over in which undici wrote. */
  static #noteWritten(sending: Sending): void {
    sending.#wrote = sending.#hasWritten();
  }

  /** @internal when nothing has come for so long */
  onSilence(controller: Dispatcher.DispatchController): void {
    if (this.#isHeldUp) this.#timer?.refresh();
    else
      this.#giveUp(
        controller,
        `${this.#isPassedOn ? 'nothing more came' : 'no answer'} within ${this.#options.timeoutMs} ms`,
      );
  }

  /** Whether any byte was written, by the counter of the socket. */
  #hasWritten(): boolean {
    return this.#wrote || this.#socket?.bytesWritten !== this.#before;
  }

  #ask(): void {
    const gate = this.#options.gate();
    if (gate === 'go') return;
    this.#heldBack = gate;
    throw new HeldBack();
  }

  async *#gated(body: SentBody): AsyncGenerator<Buffer> {
    let asked = false;
    for await (const piece of body.pieces()) {
      if (!asked) this.#ask();
      asked = true;
      yield piece;
    }
  }

  #settle(result: Attempt): void {
    if (this.#settled) return;
    this.#settled = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    if (this.#wholeTimer !== null) clearTimeout(this.#wholeTimer);
    this.#resolve(result);
  }

  #passedOn(broke: Broke | null): void {
    if (this.#status === null || this.#startedAt === null) return;
    const { status, headers, startedAt } = { status: this.#status, headers: this.#headers, startedAt: this.#startedAt };
    this.#settle({ kind: 'passed_on', status, headers, broke, startedAt });
  }

  #answered(whole: boolean): void {
    if (this.#status === null || this.#startedAt === null) return;
    const first = this.#body ?? Buffer.alloc(0);
    this.#settle({
      kind: 'answer',
      status: this.#status,
      headers: this.#headers,
      body: this.#more === null ? first : Buffer.concat([first, this.#more.take()], this.#length),
      whole,
      startedAt: this.#startedAt,
    });
  }

  #lost(code: 'timeout' | 'reset' | 'malformed', message: string): void {
    if (this.#isPassedOn) this.#passedOn({ code: code === 'timeout' ? code : 'reset', message });
    // A status line was read. It counts, whatever became of the body.
    else if (this.#status !== null) this.#answered(false);
    else if (this.#startedAt !== null) this.#settle({ kind: 'lost', code, message, startedAt: this.#startedAt });
  }

  #giveUp(controller: Dispatcher.DispatchController, message: string): void {
    this.#lost('timeout', message);
    this.#reset(controller);
  }

  /** Ends the connection with a reset, so that the upstream does not think that we are still waiting. */
  #reset(controller: Dispatcher.DispatchController): void {
    // If a socket beneath TLS closes while undici reads from it, the process dies. So TLS is closed from its own side.
    if (this.#connection.encrypted) controller.abort(new GivenUp());
    else this.#connection.socket?.resetAndDestroy();
  }

  #passPiece(controller: Dispatcher.DispatchController, piece: Buffer): void {
    const { stream, passing } = this.#options;
    this.#length += piece.byteLength;
    if (stream !== null && this.#length > stream.bytes) {
      const message = `the answer is longer than the ${stream.bytes} bytes that are passed on`;
      this.#passedOn({ code: 'too_long', message });
      this.#reset(controller);
      return;
    }
    this.#pieces += 1;
    const taken = passing?.write(piece) ?? (this.#pieces % PIECES_A_TURN === 0 ? nextTurn() : undefined);
    if (taken === undefined) return;
    this.#isHeldUp = true;
    controller.pause();
    void taken.then(() => {
      this.#isHeldUp = false;
      if (this.#settled) return;
      this.#timer?.refresh();
      controller.resume();
    });
  }
}

function onSilence(sending: Sending, controller: Dispatcher.DispatchController): void {
  sending.onSilence(controller);
}

type Broke = NonNullable<Extract<Attempt, { kind: 'passed_on' }>['broke']>;

/** Without a length or chunks, the end of an answer looks the same as the end of its server. */
const UNFRAMED: Broke = {
  code: 'reset',
  message: 'the answer had neither a length nor chunks, so nothing says that it is whole',
};

function isFramed(headers: IncomingHeaders): boolean {
  return headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
}

/** The hint changes no outcome: bytes were written. */
function brokenWords({ encrypted, hasAnswered }: Connection): string {
  const reason = 'the connection broke before the answer came';
  return encrypted && !hasAnswered ? `${reason}; ${MAY_BE_REFUSED}` : reason;
}

function isMalformed(error: Error): boolean {
  return error.name === 'HTTPParserError' || error.name === 'HeadersOverflowError';
}
