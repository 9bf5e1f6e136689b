import { closeSync, existsSync, fdatasyncSync, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { onOneState, type SqlDatabase } from './driver.ts';
import { FRAME_HEADER_BYTES, HEADER_BYTES, isFrameInUse, SALT_BYTES, SALTS_AT } from './sync-queue.ts';

/** So much is written before the disk has to have it. */
const PART_BYTES = 4 * 1024 * 1024;

/**
 * Copies a database as it is at one moment, also while a gateway writes to it. The copy is a file and its journal: who
 * opens it gets what was committed last when the journal was copied.
 *
 * While a connection reads, nothing that it has not seen is brought into the file, and the journal up to there is not
 * written over. So the journal is copied first, and a file that is changed meanwhile is only brought to where the copied
 * journal brings it as well. A journal that was wholly in the file when reading began may begin a new round, once: then it
 * is copied again (https://www.sqlite.org/wal.html; Litestream takes its snapshots in this manner).
 *
 * What is copied goes to the disk in small parts: after a large file that is written at once, each sync of the gateway
 * waits behind all of it.
 * @param database a connection to `file` that is used for nothing else
 * @throws what the system or the driver says
 */
export function copyLive(database: SqlDatabase, file: string, to: string): void {
  copyJournalAnd(database, file, `${to}-wal`, (source, opening) =>
    copyInParts(source, opening(to, 'w', 0o600), fstatSync(source).size),
  );
}

/**
 * The same, where something else is to be done with the file.
 * @param to for the journal
 * @param read gets the file's descriptor
 */
export function copyJournalAnd<T>(
  database: SqlDatabase,
  file: string,
  to: string,
  read: (source: number, opening: typeof openSync) => T,
): T {
  const pageBytes = Number(database.prepare('PRAGMA page_size').get()?.['page_size']);
  const opened: number[] = [];
  const opening = (...of: Parameters<typeof openSync>): number => {
    const descriptor = openSync(...of);
    opened.push(descriptor);
    return descriptor;
  };
  try {
    return onOneState(database, () => {
      // A transaction sees the state of its first read.
      database.prepare('SELECT count(*) FROM sqlite_schema').get();
      const journal = `${file}-wal`;
      if (existsSync(journal)) copyJournal(opening(journal, 'r'), opening(to, 'w', 0o600), pageBytes);
      return read(opening(file, 'r'), opening);
    });
  } finally {
    database.close();
    // Only now: with any descriptor of a file, a process gives up its locks on it.
    for (const descriptor of opened) closeSync(descriptor);
  }
}

function copyJournal(from: number, to: number, pageBytes: number): void {
  const copy = (): void => copyInParts(from, to, journalBytes(from, fstatSync(from).size, pageBytes));
  const round = journalRound(from);
  copy();
  if (journalRound(from) !== round) copy();
}

/** What tells one round of a journal from the next, and from none. */
function journalRound(descriptor: number): string {
  const salts = Buffer.alloc(SALT_BYTES);
  readSync(descriptor, salts, 0, SALT_BYTES, SALTS_AT);
  return salts.toString('hex');
}

/** How long the current round of a journal is so far, bytes: what stands behind it is of an earlier round. */
function journalBytes(descriptor: number, size: number, pageBytes: number): number {
  const frameBytes = FRAME_HEADER_BYTES + pageBytes;
  let least = 0;
  let most = Math.max(0, Math.floor((size - HEADER_BYTES) / frameBytes));
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (isFrameInUse(descriptor, middle, pageBytes)) least = middle;
    else most = middle - 1;
  }
  return least === 0 ? 0 : HEADER_BYTES + least * frameBytes;
}

function copyInParts(from: number, to: number, bytes: number): void {
  const part = Buffer.allocUnsafe(PART_BYTES);
  for (let at = 0; at < bytes; ) {
    const length = readSync(from, part, 0, Math.min(part.length, bytes - at), at);
    if (length === 0) return;
    at += writeSync(to, part, 0, length, at);
    fdatasyncSync(to);
  }
}
