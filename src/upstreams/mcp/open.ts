import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import { ANNOUNCED_TOO_OFTEN, MOST_ANNOUNCEMENTS } from '../http/announcements.ts';

export interface McpRequest {
  readonly method: 'POST' | 'GET' | 'DELETE';
  readonly path: string;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
  /** Whose session it begins, where it begins one; absent: the gateway's own. */
  readonly holder?: string;
}

/** What became of a request up to the head of its answer. */
export type Opened =
  | { readonly kind: 'held_back'; readonly by: 'late' | 'paused' }
  | { readonly kind: 'nothing_sent'; readonly message: string }
  | { readonly kind: 'lost'; readonly message: string; readonly startedAt: number }
  | {
      readonly kind: 'answer';
      readonly status: number;
      readonly headers: Readonly<Record<string, string | string[] | undefined>>;
      /** Destroying it closes the connection: the server sees that nobody listens any more. */
      readonly body: Readable;
      readonly startedAt: number;
    };

export interface OpenOptions {
  readonly gate: () => 'go' | 'late' | 'paused';
  readonly signal: AbortSignal | null;
  /** ms since the epoch, for evidence. */
  readonly now: () => number;
}

class HeldBack extends Error {}
class NotAgain extends Error {}
class GivenUp extends Error {}

/**
 * Sends one request, once, and resolves with the head of its answer; the body is read as it comes. The gate is asked in
 * the turn in which undici writes: nothing runs in between. Once it has opened, something may have reached the server.
 */
export function open(
  through: Pick<Dispatcher, 'dispatch'>,
  request: McpRequest,
  options: OpenOptions,
): Promise<Opened> {
  return new Promise((resolve) => begin(through, request, options, resolve));
}

function begin(
  through: Pick<Dispatcher, 'dispatch'>,
  request: McpRequest,
  options: OpenOptions,
  resolve: (opened: Opened) => void,
): void {
  const { signal } = options;
  let startedAt: number | null = null;
  let heldBack: 'late' | 'paused' | null = null;
  let body: Readable | null = null;
  let abort: (() => void) | null = null;
  let announcements = 0;

  const giveUp = (): void => abort?.();
  const over = (): void => signal?.removeEventListener('abort', giveUp);
  const handler: Dispatcher.DispatchHandler = {
    onRequestStart(controller) {
      // undici should start a request only once. If it ever starts one again, this stops it.
      if (startedAt !== null) throw new NotAgain();
      heldBack = signal?.aborted === true ? 'late' : asHeld(options.gate());
      if (heldBack !== null) throw new HeldBack();
      startedAt = options.now();
      abort = () => controller.abort(new GivenUp());
      signal?.addEventListener('abort', giveUp, { once: true });
    },
    onResponseStart(controller, status, headers) {
      if (startedAt === null) return;
      if (status < 200) {
        announcements += 1;
        if (announcements > MOST_ANNOUNCEMENTS) controller.abort(new Error(ANNOUNCED_TOO_OFTEN));
        return;
      }
      body = new Readable({
        read: () => controller.resume(),
        destroy: (error, done) => {
          over();
          if (error !== null || body?.readableEnded !== true) controller.abort(error ?? new GivenUp());
          done(error);
        },
      });
      // Whoever reads it hears of its end; nobody else is to.
      body.on('error', () => undefined);
      resolve({ kind: 'answer', status, headers, body, startedAt });
    },
    onResponseData(controller, chunk) {
      if (body?.push(chunk) === false) controller.pause();
    },
    onResponseEnd() {
      over();
      body?.push(null);
    },
    onResponseError(_controller, error) {
      over();
      if (body !== null) body.destroy(error);
      else if (heldBack !== null) resolve({ kind: 'held_back', by: heldBack });
      else if (startedAt === null) resolve({ kind: 'nothing_sent', message: error.message });
      else resolve({ kind: 'lost', message: 'the connection broke before the answer came', startedAt });
    },
  };
  try {
    through.dispatch({ ...request, idempotent: false }, handler);
  } catch (error) {
    // undici checks the request before it queues it.
    resolve({ kind: 'nothing_sent', message: error instanceof Error ? error.message : 'the request is not valid' });
  }
}

function asHeld(gate: 'go' | 'late' | 'paused'): 'late' | 'paused' | null {
  return gate === 'go' ? null : gate;
}
