import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { Connection } from './connections.ts';
import type { SentBody } from './sent-body.ts';

type IncomingHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** What came of one attempt on one connection. */
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
  /** Bytes of an answer that are read at all. */
  readonly responseBytes: number;
  readonly now: () => number;
}

class HeldBack extends Error {}
class NotAgain extends Error {}
class GivenUp extends Error {}

/**
 * Sends one request on one connection, once, and reads its answer.
 *
 * undici calls `onRequestStart` in the same turn of the event loop in which it writes, with no step in between, also
 * for a request that waited for its connection: whatever the gate says there holds for the write. A throw there stops
 * the request before a byte of it is written. Of a body that comes in pieces the head is written with the first one: the
 * gate is asked again then.
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
      // A status line was read: what it says holds, whatever became of the body.
      if (status !== null) answered(false);
      else if (startedAt !== null) settle({ kind: 'lost', code, message, startedAt });
    };
    /** Ends the connection with a reset, so that the upstream does not take our silence for interest. */
    const reset = (controller: Dispatcher.DispatchController): void => {
      // A socket that goes from beneath TLS while undici reads from it ends the process: TLS is ended from its own side.
      if (connection.encrypted) controller.abort(new GivenUp());
      else connection.socket?.resetAndDestroy();
    };

    /** Whether anything went out, by the counter of the socket. */
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
        // A request is begun once; should undici ever begin it again, the second time is stopped here.
        if (startedAt !== null) throw new NotAgain();
        ask();
        startedAt = options.now();
        const { socket } = connection;
        const before = socket?.bytesWritten;
        wrote = before === undefined;
        hasWritten = () => wrote || socket?.bytesWritten !== before;
        // The write follows in this turn; what it wrote stands in the counter when the turn's microtasks run.
        queueMicrotask(() => {
          if (socket?.bytesWritten !== before) wrote = true;
        });
        timer = setTimeout(() => {
          lost('timeout', `no answer within ${options.timeoutMs} ms`);
          reset(controller);
        }, options.timeoutMs);
      },
      onResponseStart: (_controller, statusCode, incoming) => {
        // 1xx announce an answer, they are none.
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
        // Judged by bytes, never by the error: the counter of the socket did not move, so nothing went out.
        else if (!hasWritten()) {
          settle({ kind: 'nothing_sent', message: 'the connection was gone before a byte was written' });
        } else if (isMalformed(error)) lost('malformed', 'the upstream sent something that is not HTTP');
        else lost('reset', 'the connection broke before the answer came');
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
      // undici judges the request before it queues it.
      settle({ kind: 'nothing_sent', message: error instanceof Error ? error.message : 'the request is not valid' });
      released();
    }
  });
}

function isMalformed(error: Error): boolean {
  return error.name === 'HTTPParserError' || error.name === 'HeadersOverflowError';
}
