import type { SqlDatabase } from './driver.ts';

/** Settings of a connection: durable on commit, readers in parallel to the writer, a short wait for another writer. */
export function configureConnection(database: SqlDatabase): void {
  database.prepare('PRAGMA busy_timeout = 5000').all();
  database.prepare('PRAGMA page_size = 8192').all();
  database.prepare('PRAGMA journal_mode = WAL').all();
  database.prepare('PRAGMA synchronous = FULL').all();
  database.prepare('PRAGMA cache_size = -32768').all();
  database.prepare('PRAGMA wal_autocheckpoint = 4000').all();
}

/** Ends a transaction without its writes. After some errors SQLite has already done so. */
export function rollback(database: SqlDatabase): void {
  try {
    database.exec('ROLLBACK');
  } catch {
    // No transaction is open any more, as wanted.
  }
}

/**
 * Settings of a connection that only reads, beside the one that writes: it cannot write and never waits for the other.
 */
export function configureReader(database: SqlDatabase): void {
  database.prepare('PRAGMA busy_timeout = 5000').all();
  database.prepare('PRAGMA query_only = 1').all();
  database.prepare('PRAGMA cache_size = -8192').all();
}

/** Runs `read` on one state of the database. */
export function onOneState<T>(database: SqlDatabase, read: () => T): T {
  database.exec('BEGIN');
  try {
    return read();
  } finally {
    rollback(database);
  }
}

/** Runs `work` in a transaction, which writes all or nothing. */
export function inTransaction<T>(database: SqlDatabase, work: () => T): T {
  database.exec('BEGIN IMMEDIATE');
  try {
    const result = work();
    database.exec('COMMIT');
    return result;
  } catch (error) {
    rollback(database);
    throw error;
  }
}
