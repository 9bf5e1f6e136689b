import { createHash } from 'node:crypto';
import { closeSync, existsSync, fdatasyncSync, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { SqlDatabase } from './driver.ts';

/** SQLite's journal beside the file of the store. */
export const JOURNAL = 'store.db-wal';

const CHUNK_BYTES = 1024 * 1024;

/** What a journal contained before SQLite looked at it; `null`: there was none, or it was empty. */
export type JournalSeen = { readonly bytes: number; readonly digest: string } | null;

/**
 * Looks at the journal that an earlier process left, before the file is opened. A process that ended in order left
 * none.
 */
export function seeJournal(path: string): JournalSeen {
  const file = join(path, JOURNAL);
  if (!existsSync(file)) return null;
  const descriptor = openSync(file, 'r');
  try {
    const { size } = fstatSync(descriptor);
    return size === 0 ? null : { bytes: size, digest: walk(descriptor, size, null) };
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Writes the journal that an earlier process left to the disk again, before anything is built on it. After a failed
 * sync, or if a process died before a sync, its content may be only in memory but marked as written. A sync alone would
 * then write nothing. So every byte is written again and synced.
 *
 * The journal is read before and after SQLite opens the file. If both reads give the same, SQLite read the same too,
 * and what the second read returns is written: nothing that SQLite used is left out.
 * @param database open and idle; other processes do not write meanwhile
 * @param seen by {@link seeJournal}, before it was opened
 * @throws Error if it cannot be synced, or was changed by another process
 */
export function rewriteJournal(path: string, database: SqlDatabase, seen: JournalSeen): void {
  if (seen === null) return;
  database.exec('BEGIN IMMEDIATE');
  try {
    const file = join(path, JOURNAL);
    const descriptor = openSync(file, 'r+');
    try {
      const { size } = fstatSync(descriptor);
      // Another process (`svc keys create`) may have appended, but what was there before must be the same.
      const same = size >= seen.bytes && walk(descriptor, seen.bytes, writeSync) === seen.digest;
      if (!same) throw new Error(`${file} changed while it was opened; start again`);
      fdatasyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  } finally {
    database.exec('ROLLBACK');
  }
}

type Write = (descriptor: number, chunk: Buffer, offset: number, length: number, position: number) => number;

/** Reads this many bytes, passes each piece to `write`, and returns their digest. */
function walk(descriptor: number, bytes: number, write: Write | null): string {
  const digest = createHash('sha256');
  const chunk = Buffer.alloc(Math.min(CHUNK_BYTES, bytes));
  for (let at = 0; at < bytes; ) {
    const length = readSync(descriptor, chunk, 0, Math.min(chunk.length, bytes - at), at);
    if (length === 0) break;
    digest.update(chunk.subarray(0, length));
    if (write !== null && write(descriptor, chunk, 0, length, at) < length)
      throw new Error('the journal of the store cannot be written');
    at += length;
  }
  return digest.digest('hex');
}
