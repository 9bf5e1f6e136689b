import { StoreUnavailable } from '../../effects/store.ts';
import { loadDriver } from './driver.ts';
import { openLooks } from './looks.ts';
import type { Reply } from './threads/reply.ts';
import type { Request } from './threads/request.ts';
import { startThread, type StoreThread } from './threads/thread.ts';

/** After its thread died, nobody is served for so long, ms. */
const RESTART_MS = 500;

/** The side of the store that reads for people: in this thread or in another one. */
export interface Looker {
  /** What is answered may not be durable yet. */
  ask(request: Request): Promise<Reply>;
  /** Closes the file. The next request opens it again. */
  letGo(): void;
  close(): Promise<void>;
}

/** Looks in this thread, one look a turn of the event loop. */
export async function lookHere(path: string): Promise<Looker> {
  const looks = openLooks(path, await loadDriver());
  let isClosed = false;
  return {
    async ask(request) {
      await new Promise((resolve) => setImmediate(resolve));
      if (isClosed) throw new StoreUnavailable('The store is closed.');
      return looks.look(request);
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
    const started = startThread(
      entry,
      { path },
      () => {},
      () => {
        thread = null;
        restartAt = performance.now() + RESTART_MS;
        closed?.();
      },
    );
    return started;
  }

  // Its start takes longer than a look, so nobody should wait for it.
  thread = start();
  return {
    async ask(request) {
      if (closed !== null) throw new StoreUnavailable('The store is closed.');
      if (thread === null && performance.now() < restartAt)
        throw new StoreUnavailable('The thread that reads the store has ended. It is started again.');
      thread ??= start();
      return thread.ask(request);
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
