import { join } from 'node:path';
import { StoreUnavailable } from '../../effects/store.ts';
import { type OpenDatabase, SQLITE_BUSY, type SqlDatabase, storageFailure } from './driver.ts';
import { asError, codeOf, describe, isNotAllowed } from './failure-text.ts';
import { makePrivateFile } from '../private-folder.ts';

/** How often a taken lock is tried again, ms. */
const RETRY_MS = 50;

export type StoreLock = Awaited<ReturnType<typeof acquireLock>>;

/**
 * Keeps a second gateway out, by an exclusive transaction that stays open as long as the process lives. The operating
 * system ends it with the process, whatever ends the process.
 * @throws StoreUnavailable when another process still has it after `waitMs`
 */
export async function acquireLock(path: string, open: OpenDatabase, waitMs: number) {
  const deadline = performance.now() + waitMs;
  const database = openLockFile(path, open);
  for (;;) {
    if (tryLock(path, database)) {
      return {
        release() {
          database.exec('ROLLBACK');
          database.close();
        },
      };
    }
    if (performance.now() >= deadline) {
      database.close();
      throw new StoreUnavailable(
        `Another gateway uses the store in ${path} (waited ${waitMs / 1000} s for its lock). Stop it first. A second gateway needs a folder of its own.`,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

export function isLocked(path: string, open: OpenDatabase): boolean {
  const database = openLockFile(path, open);
  try {
    if (!tryLock(path, database)) return true;
    database.exec('ROLLBACK');
    return false;
  } finally {
    database.close();
  }
}

function openLockFile(path: string, open: OpenDatabase): SqlDatabase {
  const file = join(path, 'lock.db');
  try {
    makePrivateFile(file);
    const database = open(file);
    database.prepare('PRAGMA busy_timeout = 0').all();
    return database;
  } catch (error) {
    throw notTaken(path, error);
  }
}

function tryLock(path: string, database: SqlDatabase): boolean {
  try {
    database.exec('BEGIN EXCLUSIVE');
    return true;
  } catch (error) {
    if (storageFailure(error) === SQLITE_BUSY) return false;
    throw notTaken(path, error);
  }
}

function notTaken(path: string, error: unknown): StoreUnavailable {
  if (!isNotAllowed(error)) return new StoreUnavailable(describe(path, error), { cause: error });
  const why =
    codeOf(error) === 'EROFS'
      ? 'Its disk is mounted for reading only'
      : 'The user that runs this has to own the folder of the store';
  const { message } = asError(error);
  return new StoreUnavailable(`The lock of the store cannot be taken: ${message}. ${why}.`, { cause: error });
}
