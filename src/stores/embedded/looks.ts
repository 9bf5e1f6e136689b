import { StoreUnavailable } from '../../effects/store.ts';
import type { SyncBehind } from './behind.ts';

/** A read of what is committed, outside the transactions. Exactly one of `done` and `failed` is called. */
export interface Look<Reader> {
  run(reader: Reader): void;
  /** What it saw is durable. */
  done(): void;
  failed(error: Error): void;
}

export interface Looks<Reader> {
  add(look: Look<Reader>): void;
  /** Serves all waiting looks without pauses. */
  finish(): void;
}

/** After a look, the thread belongs to transactions for this many times as long as the look took. */
const PAUSE_FACTOR = 4;

/**
 * Serves looks one at a time with pauses in between, so that transactions have most of the thread, however many people
 * look.
 * @param at what can be seen now; throws if nothing can
 */
export function serveLooks<Reader>(at: () => { readonly tables: Reader; readonly journal: SyncBehind }): Looks<Reader> {
  let queue: Look<Reader>[] = [];
  let next = 0;
  let scheduled = false;

  function take(): Look<Reader> | undefined {
    const look = queue[next];
    next += 1;
    if (next >= queue.length) {
      queue = [];
      next = 0;
    }
    return look;
  }

  function schedule(tookMs: number): void {
    scheduled = queue.length > 0;
    if (!scheduled) return;
    const pause = tookMs * PAUSE_FACTOR;
    if (pause < 1) setImmediate(serve);
    else setTimeout(serve, pause);
  }

  function serve(): void {
    const start = performance.now();
    const look = take();
    if (look !== undefined) run(look);
    schedule(performance.now() - start);
  }

  function run(look: Look<Reader>): void {
    try {
      const { tables, journal } = at();
      look.run(tables);
      // The look may have seen what is not on the disk yet.
      journal.join({ answer: look.done, fail: (error) => look.failed(unavailable(error)) });
    } catch (error) {
      look.failed(unavailable(error));
    }
  }

  return {
    add(look) {
      queue.push(look);
      if (!scheduled) schedule(0);
    },
    finish() {
      for (let look = take(); look !== undefined; look = take()) run(look);
    },
  };
}

function unavailable(error: unknown): Error {
  if (error instanceof StoreUnavailable) return error;
  return new StoreUnavailable(error instanceof Error ? error.message : String(error));
}
