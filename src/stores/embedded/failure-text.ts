import { SQLITE_CORRUPT, SQLITE_FULL, SQLITE_NOTADB, SQLITE_READONLY, storageFailure } from './driver.ts';

/** What was thrown, as an error. */
export function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** What the system calls it, such as `EACCES`; `null` where it was not the system. */
export function codeOf(error: unknown): string | null {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : null;
}

/** Whether the system does not let this user write there. What is there is as it was. */
export function isNotAllowed(error: unknown): boolean {
  return storageFailure(error) === SQLITE_READONLY || ['EACCES', 'EPERM', 'EROFS'].includes(codeOf(error) ?? '');
}

/** Whether there is no room on the disk, as SQLite or as the system says it. */
export function isFull(error: unknown): boolean {
  return storageFailure(error) === SQLITE_FULL || ['ENOSPC', 'EDQUOT'].includes(codeOf(error) ?? '');
}

export function describe(path: string, error: unknown): string {
  const code = storageFailure(error);
  if (isFull(error)) return `The disk under the store in ${path} is full: nothing is admitted until there is room.`;
  if (code === SQLITE_CORRUPT || code === SQLITE_NOTADB)
    return `The file ${path}/store.db is damaged. Restore it from a backup.`;
  if (['EEXIST', 'ENOTDIR'].includes(codeOf(error) ?? ''))
    return `The store cannot be used: store.path, ${path}, has to be a folder, and there is a file in its place.`;
  return `The store in ${path} cannot be used: ${asError(error).message}.`;
}
