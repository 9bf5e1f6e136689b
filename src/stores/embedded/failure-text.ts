import { SQLITE_CORRUPT, SQLITE_FULL, SQLITE_NOTADB, storageFailure } from './driver.ts';

/** What was thrown, as an error. */
export function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** Whether there is no room on the disk, as SQLite or as the system says it. */
export function isFull(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : null;
  return storageFailure(error) === SQLITE_FULL || code === 'ENOSPC' || code === 'EDQUOT';
}

/** Says what is wrong with the store, for people. */
export function describe(path: string, error: unknown): string {
  const code = storageFailure(error);
  if (isFull(error)) {
    return `The disk under the store in ${path} is full: nothing is admitted until there is room.`;
  }
  if (code === SQLITE_CORRUPT || code === SQLITE_NOTADB) {
    return `The file ${path}/store.db is damaged. Restore it from a backup.`;
  }
  return `The store in ${path} cannot be used: ${asError(error).message}.`;
}
