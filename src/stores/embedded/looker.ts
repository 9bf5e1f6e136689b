import { StoreUnavailable } from '../../effects/store.ts';
import { loadDriver } from './driver.ts';
import { openLooks } from './looks.ts';
import type { Ask, Looking } from './threads/operations.ts';
import { startThread, type StoreThread } from './threads/thread.ts';

/** After its thread died, nobody is served for so long, ms. */
const RESTART_MS = 500;

/** The side of the store that reads for people: in this thread or in another one. */
export interface Looker {
  /** What is answered may not be durable yet. */
  readonly ask: Ask<Looking>;
  /** Closes the file. The next request opens it again. */
  letGo(): void;
  close(): Promise<void>;
}

/** Looks in this thread, one look a turn of the event loop. */
export async function lookHere(path: string): Promise<Looker> {
  const looks = openLooks(path, await loadDriver());
  let isClosed = false;
  return {
    async ask(op, query) {
      await new Promise((resolve) => setImmediate(resolve));
      if (isClosed) throw new StoreUnavailable('The store is closed.');
      return new Promise((resolve, reject) => looks.handlers[op](query, resolve, reject));
    },
    letGo: looks.close,
    async close() {
      isClosed = true;
      looks.close();
    },
  };
}

/** Looks in a thread of its own. If it dies, calls go on, and a later look starts it again. */
export function lookInThread(entry: URL, path: string): Looker {
  let thread: StoreThread | null = null;
  let restartAt = 0;
  let closed: (() => void) | null = null;

  function start(): StoreThread {
    const ended = (): void => {
      thread = null;
      restartAt = performance.now() + RESTART_MS;
      closed?.();
    };
    return startThread(entry, { path }, () => {}, ended);
  }

  // Its start takes longer than a look, so nobody should wait for it.
  thread = start();
  return {
    async ask(op, query) {
      if (closed !== null) throw new StoreUnavailable('The store is closed.');
      if (thread === null && performance.now() < restartAt)
        throw new StoreUnavailable('The thread that reads the store has ended. It is started again.');
      thread ??= start();
      return thread.ask(op, query);
    },
    letGo: () => thread?.tell({ kind: 'let_go' }),
    close: () =>
      new Promise((resolve) => {
        closed = resolve;
        if (thread === null) resolve();
        else thread.tell({ kind: 'close' });
      }),
  };
}
