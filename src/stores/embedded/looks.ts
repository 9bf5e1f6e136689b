import { join } from 'node:path';
import { StoreUnavailable } from '../../effects/store.ts';
import { STORE_FILE } from './boot.ts';
import { configureReader, rollback } from './connection.ts';
import type { OpenDatabase, SqlDatabase } from './driver.ts';
import { openReader, type Reader } from './tables/reader.ts';
import type { Handlers, Looking } from './threads/operations.ts';

/** Reads what is committed, beside the connection that writes. What is seen may not be durable yet. */
export interface Looks {
  /** They fail with `StoreUnavailable` if the file cannot be read. */
  readonly handlers: Handlers<Looking>;
  /** Closes the file. The next look opens it again. */
  close(): void;
}

/** @param path folder of a store that is open; the file is opened at the first look */
export function openLooks(path: string, open: OpenDatabase): Looks {
  let opened: { readonly database: SqlDatabase; readonly reader: Reader } | null = null;

  function connect(): { readonly database: SqlDatabase; readonly reader: Reader } {
    const database = open(join(path, STORE_FILE));
    configureReader(database);
    return { database, reader: openReader(database) };
  }

  function close(): void {
    opened?.database.close();
    opened = null;
  }

  /** All that one look reads is one state of the store. */
  function look<T>(work: (reader: Reader) => T): T {
    opened ??= connect();
    const { database, reader } = opened;
    database.exec('BEGIN');
    try {
      return work(reader);
    } finally {
      rollback(database);
    }
  }

  function answer<T>(work: (reader: Reader) => T, done: (answer: T) => void, failed: (error: Error) => void): void {
    let seen: T;
    try {
      seen = look(work);
    } catch (error) {
      close();
      failed(new StoreUnavailable(error instanceof Error ? error.message : String(error)));
      return;
    }
    done(seen);
  }

  return {
    handlers: {
      list: (query, done, failed) => answer((reader) => reader.list(query), done, failed),
      ledger: (query, done, failed) => answer((reader) => reader.ledger(query), done, failed),
    },
    close,
  };
}
