import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { Tool } from '../../effects/model/tool.ts';
import type { Connection } from './connections.ts';
import type { SentBody } from './sent-body.ts';
import { MAY_BE_REFUSED } from './tls-faults.ts';

type IncomingHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** The outcome of one attempt on one connection. */
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

/** A request with everything that is sent. */
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
 *
 * undici calls `onRequestStart` in the same turn of the event loop in which it writes, even for a request that waited
 * for its connection. Nothing runs in between, so what the gate says there is still true for the write. A throw there
 * stops the request before any byte is written. If the body comes in pieces, undici writes the head with the first
 * piece, so the gate is asked again then.
 * @param released called once the connection can carry another request
 */
export function attempt(
  connection: Connection,
  request: AttemptRequest,
  options: AttemptOptions,
  released: () => void,
): Promise<Attempt> {
  return new Promise((resolve) => {
    let startedAt: number | null = null;
    let wrote = false;
    let timer: NodeJS.Timeout | null = null;
    let wholeTimer: NodeJS.Timeout | null = null;
    let isPassedOn = false;
    /** The caller has not taken the last piece yet. Nothing is read meanwhile, so silence means nothing. */
    let isHeldUp = false;
    let heldBack: 'late' | 'paused' | null = null;
    let status: number | null = null;
    let headers: IncomingHeaders = {};
    const chunks: Buffer[] = [];
    let length = 0;
    let settled = false;

    const settle = (result: Attempt): void => {
      if (settled) return;
      settled = true;
      if (timer !== null) clearTimeout(timer);
      if (wholeTimer !== null) clearTimeout(wholeTimer);
      resolve(result);
    };
    const passedOn = (broke: Broke | null): void => {
      if (status === null || startedAt === null) return;
      settle({ kind: 'passed_on', status, headers, broke, startedAt });
    };
    const answered = (whole: boolean): void => {
      if (status === null || startedAt === null) return;
      const [only] = chunks;
      const body = chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks, length);
      settle({ kind: 'answer', status, headers, body, whole, startedAt });
    };
    const lost = (code: 'timeout' | 'reset' | 'malformed', message: string): void => {
      if (isPassedOn) {
        passedOn({ code: code === 'timeout' ? code : 'reset', message });
        return;
      }
      // A status line was read. It counts, whatever became of the body.
      if (status !== null) answered(false);
      else if (startedAt !== null) settle({ kind: 'lost', code, message, startedAt });
    };
    /** Ends the connection with a reset, so that the upstream does not think that we are still waiting. */
    const reset = (controller: Dispatcher.DispatchController): void => {
      // If a socket beneath TLS closes while undici reads from it, the process dies. So TLS is closed from its own
      // side.
      if (connection.encrypted) controller.abort(new GivenUp());
      else connection.socket?.resetAndDestroy();
    };

    /** Whether any byte was written, by the counter of the socket. */
    let hasWritten = (): boolean => wrote;
    const ask = (): void => {
      const gate = options.gate();
      if (gate === 'go') return;
      heldBack = gate;
      throw new HeldBack();
    };
    async function* gated(body: SentBody): AsyncGenerator<Buffer> {
      let asked = false;
      for await (const piece of body.pieces()) {
        if (!asked) ask();
        asked = true;
        yield piece;
      }
    }

    const passPiece = (controller: Dispatcher.DispatchController, piece: Buffer): void => {
      const { stream, passing } = options;
      length += piece.byteLength;
      if (stream !== null && length > stream.bytes) {
        passedOn({
          code: 'too_long',
          message: `the answer is longer than the ${stream.bytes} bytes that are passed on`,
        });
        reset(controller);
        return;
      }
      const taken = passing?.write(piece);
      if (taken === undefined) return;
      isHeldUp = true;
      controller.pause();
      void taken.then(() => {
        isHeldUp = false;
        if (settled) return;
        timer?.refresh();
        controller.resume();
      });
    };

    const handler: Dispatcher.DispatchHandler = {
      onRequestStart: (controller) => {
        // undici should start a request only once. If it ever starts one again, this stops it.
        if (startedAt !== null) throw new NotAgain();
        ask();
        startedAt = options.now();
        const { socket } = connection;
        const before = socket?.bytesWritten;
        wrote = before === undefined;
        hasWritten = () => wrote || socket?.bytesWritten !== before;
        // undici writes in this turn. By the time the microtasks of the turn run, the counter includes what it wrote.
        queueMicrotask(() => {
          if (socket?.bytesWritten !== before) wrote = true;
        });
        const giveUp = (message: string): void => {
          lost('timeout', message);
          reset(controller);
        };
        timer = setTimeout(() => {
          if (isHeldUp) timer?.refresh();
          else giveUp(`${isPassedOn ? 'nothing more came' : 'no answer'} within ${options.timeoutMs} ms`);
        }, options.timeoutMs);
        const { stream } = options;
        if (stream !== null)
          wholeTimer = setTimeout(() => giveUp(`the answer was not over after ${stream.totalMs} ms`), stream.totalMs);
      },
      onResponseStart: (_controller, statusCode, incoming) => {
        // 1xx only announce an answer.
        connection.hasAnswered = true;
        if (statusCode < 200) return;
        status = statusCode;
        headers = incoming;
        if (!settled && options.passing !== null) isPassedOn = options.passing.begin(statusCode, incoming);
        if (options.stream !== null) timer?.refresh();
      },
      onResponseData: (controller, chunk) => {
        if (settled) return;
        if (options.stream !== null) timer?.refresh();
        if (isPassedOn) {
          passPiece(controller, chunk);
          return;
        }
        const room = options.responseBytes - length;
        chunks.push(chunk.byteLength > room ? chunk.subarray(0, room) : chunk);
        length += Math.min(chunk.byteLength, room);
        if (chunk.byteLength > room) {
          answered(false);
          reset(controller);
        }
      },
      onResponseEnd: () => {
        if (isPassedOn) passedOn(isFramed(headers) ? null : UNFRAMED);
        else answered(true);
        released();
      },
      onResponseError: (_controller, error) => {
        if (heldBack !== null) settle({ kind: 'held_back', by: heldBack });
        else if (startedAt === null) settle({ kind: 'nothing_sent', message: error.message });
        // Judged by bytes, never by the error: the counter of the socket did not move, so nothing was sent.
        else if (!hasWritten()) {
          settle({ kind: 'nothing_sent', message: 'the connection was gone before a byte was written' });
        } else if (isMalformed(error)) lost('malformed', 'the upstream sent something that is not HTTP');
        else lost('reset', brokenWords(connection));
        released();
      },
    };
    try {
      connection.client.dispatch(
        {
          path: request.pathAndQuery,
          method: request.method,
          headers: request.headers,
          body:
            request.body === null || Buffer.isBuffer(request.body)
              ? request.body
              : Readable.from(gated(request.body), { objectMode: false }),
          idempotent: false,
        },
        handler,
      );
    } catch (error) {
      // undici checks the request before it queues it.
      settle({ kind: 'nothing_sent', message: error instanceof Error ? error.message : 'the request is not valid' });
      released();
    }
  });
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
  const said = 'the connection broke before the answer came';
  return encrypted && !hasAnswered ? `${said}; ${MAY_BE_REFUSED}` : said;
}

function isMalformed(error: Error): boolean {
  return error.name === 'HTTPParserError' || error.name === 'HeadersOverflowError';
}
