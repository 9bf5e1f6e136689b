import { join } from 'node:path';
import { StoreUnavailable } from '../../effects/store.ts';
import { STORE_FILE } from './boot.ts';
import { configureReader, rollback } from './connection.ts';
import type { OpenDatabase, SqlDatabase } from './driver.ts';
import { openReader, type Reader } from './tables/reader.ts';
import type { Reply } from './threads/reply.ts';
import type { Request } from './threads/request.ts';

/** Reads what is committed, beside the connection that writes. What is seen may not be durable yet. */
export interface Looks {
  /** @throws StoreUnavailable if the file cannot be read */
  look(request: Request): Reply;
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

  return {
    look(request) {
      try {
        opened ??= connect();
        const { database, reader } = opened;
        // All that one look reads is one state of the store.
        database.exec('BEGIN');
        try {
          return answer(reader, request);
        } finally {
          rollback(database);
        }
      } catch (error) {
        close();
        throw new StoreUnavailable(error instanceof Error ? error.message : String(error));
      }
    },
    close,
  };
}

function answer(reader: Reader, request: Request): Reply {
  switch (request.op) {
    case 'list':
      return { op: 'list', listed: reader.list(request.query) };
    case 'ledger':
      return { op: 'ledger', entries: reader.ledger(request.query) };
    case 'commit':
    case 'read':
    case 'sums':
    case 'prune':
    case 'watch':
    case 'settled':
      throw new TypeError(`${request.op} is for the connection that writes`);
  }
}
