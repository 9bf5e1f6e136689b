import { join } from 'node:path';
import { StoreUnavailable } from '../../effects/store.ts';
import type { ReadOperation } from '../open-rows.ts';
import { STORE_FILE } from './boot.ts';
import { configureReader, loadDriver, onOneState, type OpenDatabase, type SqlDatabase } from './driver.ts';
import { openReader, type Reader } from './tables/reader.ts';
import { type Ask, asking, type Handlers, type Reading } from '../threads/operations.ts';
import { startThread, type StoreThread } from '../threads/thread.ts';

/** After its thread died, nobody is served for so long, ms. */
const RESTART_MS = 500;

/** The side of the store that reads for people: in this thread or in another one. */
export interface ReadSide {
  /** What is answered may not be durable yet. */
  readonly ask: Ask<ReadOperation>;
  /** Asks its program; `null`: it has none. */
  readonly program: ((request: string) => Promise<string>) | null;
  /** Closes the file. The next request opens it again. */
  letGo(): void;
  close(): Promise<void>;
}

/** Looks in this thread, one look a turn of the event loop. */
export async function readInThisThread(path: string): Promise<ReadSide> {
  const reads = openReads(path, await loadDriver());
  const read = asking(reads.handlers);
  let isClosed = false;
  return {
    async ask(op, query) {
      await new Promise((resolve) => setImmediate(resolve));
      if (isClosed) throw new StoreUnavailable('The store is closed.');
      return read(op, query);
    },
    program: null,
    letGo: reads.close,
    async close() {
      isClosed = true;
      reads.close();
    },
  };
}

/** Looks in a thread of its own. If it dies, calls go on, and a later look starts it again. */
export function readInOwnThread(entry: URL, path: string, program: string | null): ReadSide {
  let restartAt = 0;
  let closed: (() => void) | null = null;

  function start(): StoreThread {
    const ended = (): void => {
      thread = null;
      restartAt = performance.now() + RESTART_MS;
      closed?.();
    };
    return startThread(
      entry,
      { kind: 'read', path, program },
      () => {},
      () => {},
      ended,
    );
  }

  // Its start takes longer than a look, so nobody should wait for it.
  let thread: StoreThread | null = start();
  const ask: Ask<Reading> = async (op, query) => {
    if (closed !== null) throw new StoreUnavailable('The store is closed.');
    if (thread === null && performance.now() < restartAt)
      throw new StoreUnavailable('The thread that reads the store has ended. It is started again.');
    thread ??= start();
    return thread.ask(op, query);
  };
  return {
    ask,
    program: program === null ? null : (request) => ask('read_program', request),
    letGo: () => thread?.deliver({ kind: 'let_go' }),
    close: () =>
      new Promise((resolve) => {
        closed = resolve;
        if (thread === null) resolve();
        else thread.deliver({ kind: 'close' });
      }),
  };
}

/** Reads what is committed, beside the connection that writes. What is seen may not be durable yet. */
export interface Reads {
  /** They fail with `StoreUnavailable` if the file cannot be read. */
  readonly handlers: Handlers<ReadOperation>;
  /** Closes the file. The next look opens it again. */
  close(): void;
}

/** @param path folder of a store that is open; the file is opened at the first look */
export function openReads(path: string, open: OpenDatabase): Reads {
  let database: SqlDatabase | null = null;
  let reader: Reader | null = null;

  function close(): void {
    database?.close();
    database = null;
    reader = null;
  }

  /** All that one look reads is one state of the store. */
  function answer<T>(read: (reader: Reader) => T, done: (answer: T) => void, failed: (error: Error) => void): void {
    let seen: T;
    try {
      database ??= open(join(path, STORE_FILE));
      const of = (reader ??= openReader(configureReader(database)));
      seen = onOneState(database, () => read(of));
    } catch (error) {
      close();
      failed(new StoreUnavailable(error instanceof Error ? error.message : String(error)));
      return;
    }
    done(seen);
  }

  return {
    handlers: {
      rows: (query, done, failed) => answer((reader) => reader.rows(query), done, failed),
      list: (query, done, failed) => answer((reader) => reader.list(query), done, failed),
      ledger: (query, done, failed) => answer((reader) => reader.ledger(query), done, failed),
    },
    close,
  };
}
