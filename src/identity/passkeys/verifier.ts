import { threadBeside } from '../../home.ts';
import { Worker } from 'node:worker_threads';
import { StoreUnavailable } from '../../effects/store.ts';
import type { Verified, VerifyRequest } from './verify.ts';

/** The thread ends when nobody has needed it for so long, ms. Its library takes 20 MB. */
const IDLE_MS = 60_000;
/** A thread that does not answer within this is ended, ms. */
const LONGEST_MS = 10_000;
/** More than so many at once are refused. */
const MOST_WAITING = 50;

/** Checks what authenticators have signed, outside the thread that answers calls. */
export type PasskeyVerifier = ReturnType<typeof createVerifier>;

interface Waiting {
  readonly resolve: (verified: Verified) => void;
  readonly reject: (error: Error) => void;
  readonly timer: NodeJS.Timeout;
}

/** @param entry the program of the thread; `null`: in this thread, if no other can run these sources */
export function createVerifier(entry: URL | null = threadBeside(import.meta.url, 'passkey-worker')) {
  const waiting = new Map<number, Waiting>();
  let worker: Worker | null = null;
  let idle: NodeJS.Timeout | undefined;
  let tickets = 0;

  /** Ends the thread; whoever waits is told. */
  function end(): Promise<unknown> {
    const ended = worker?.terminate() ?? Promise.resolve();
    worker = null;
    clearTimeout(idle);
    for (const [ticket, { reject, timer }] of waiting) {
      clearTimeout(timer);
      waiting.delete(ticket);
      reject(new StoreUnavailable('Passkeys cannot be checked now. Nothing was done: try again.'));
    }
    return ended;
  }

  function begin(program: URL): Worker {
    const thread = new Worker(program, { name: 'passkeys' });
    thread.unref();
    thread.on('message', ({ ticket, verified }: { readonly ticket: number; readonly verified: Verified }) => {
      const one = waiting.get(ticket);
      waiting.delete(ticket);
      clearTimeout(one?.timer);
      one?.resolve(verified);
      if (waiting.size === 0) idle = setTimeout(() => void end(), IDLE_MS).unref();
    });
    const died = (): void => {
      if (worker === thread) void end();
    };
    thread.on('error', died);
    thread.on('exit', died);
    return thread;
  }

  return {
    /** @throws StoreUnavailable where there is no answer now */
    async verify(request: VerifyRequest): Promise<Verified> {
      if (entry === null) return (await import('./verify.ts')).verify(request);
      if (waiting.size >= MOST_WAITING)
        throw new StoreUnavailable('Too many passkeys are checked at once. Nothing was done: try again.');
      clearTimeout(idle);
      worker ??= begin(entry);
      tickets += 1;
      const ticket = tickets;
      const thread = worker;
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => void end(), LONGEST_MS).unref();
        waiting.set(ticket, { resolve, reject, timer });
        thread.postMessage({ ticket, request });
      });
    },
    async close(): Promise<void> {
      await end();
    },
  };
}
