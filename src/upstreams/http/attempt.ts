import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
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

export interface AttemptOptions {
  readonly gate: () => 'go' | 'late' | 'paused';
  /** From the first byte written to the last one read, ms. */
  readonly timeoutMs: number;
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
      resolve(result);
    };
    const answered = (whole: boolean): void => {
      if (status === null || startedAt === null) return;
      const [only] = chunks;
      const body = chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks, length);
      settle({ kind: 'answer', status, headers, body, whole, startedAt });
    };
    const lost = (code: 'timeout' | 'reset' | 'malformed', message: string): void => {
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
        timer = setTimeout(() => {
          lost('timeout', `no answer within ${options.timeoutMs} ms`);
          reset(controller);
        }, options.timeoutMs);
      },
      onResponseStart: (_controller, statusCode, incoming) => {
        // 1xx only announce an answer.
        connection.hasAnswered = true;
        if (statusCode < 200) return;
        status = statusCode;
        headers = incoming;
      },
      onResponseData: (controller, chunk) => {
        if (settled) return;
        const room = options.responseBytes - length;
        chunks.push(chunk.byteLength > room ? chunk.subarray(0, room) : chunk);
        length += Math.min(chunk.byteLength, room);
        if (chunk.byteLength > room) {
          answered(false);
          reset(controller);
        }
      },
      onResponseEnd: () => {
        answered(true);
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

/** The hint changes no outcome: bytes were written. */
function brokenWords({ encrypted, hasAnswered }: Connection): string {
  const said = 'the connection broke before the answer came';
  return encrypted && !hasAnswered ? `${said}; ${MAY_BE_REFUSED}` : said;
}

function isMalformed(error: Error): boolean {
  return error.name === 'HTTPParserError' || error.name === 'HeadersOverflowError';
}
