import { closeSync, existsSync, fstatSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { onOneState, type SqlDatabase } from './driver.ts';
import { type Image, imageOf, type NewerPages } from './image.ts';
import { FRAME_HEADER_BYTES, HEADER_BYTES, isFrameInUse, SALT_BYTES, SALTS_AT } from './sync-queue.ts';

const PART_BYTES = 4 * 1024 * 1024;

/**
 * Reads a database as it is at one moment, also while a gateway writes to it: its file, and over it what its journal had
 * when that was copied.
 *
 * While a connection reads, nothing that it has not seen is brought into the file, and the journal up to there is not
 * written over. So the journal is copied first, and a file that is changed meanwhile is only brought to where the copied
 * journal brings it as well. A journal that was wholly in the file when reading began may begin a new round, once: then it
 * is copied again (https://www.sqlite.org/wal.html; Litestream takes its snapshots in this manner).
 * @param database a connection to `file` that is used for nothing else
 * @param scratch a file for the journal, which is removed again
 * @throws what the system or the driver says
 */
export function readLive<T>(database: SqlDatabase, file: string, scratch: string, read: (image: Image) => T): T {
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
      const journal = opening(scratch, 'w+', 0o600);
      if (existsSync(`${file}-wal`)) copyJournal(opening(`${file}-wal`, 'r'), journal, pageBytes);
      const { newer, pages } = committedIn(journal, pageBytes);
      const source = opening(file, 'r');
      return read(imageOf(source, pageBytes, pages ?? Math.floor(fstatSync(source).size / pageBytes), newer));
    });
  } finally {
    database.close();
    // Only now: with any descriptor of a file, a process gives up its locks on it.
    for (const descriptor of opened) closeSync(descriptor);
    rmSync(scratch, { force: true });
  }
}

/** What SQLite would find in a journal after a crash: the pages of its transactions, and how many the last one left. */
function committedIn(
  journal: number,
  pageBytes: number,
): { readonly newer: NewerPages; readonly pages: number | null } {
  const newer: NewerPages = new Map();
  const transaction: NewerPages = new Map();
  let pages: number | null = null;
  const header = Buffer.alloc(HEADER_BYTES);
  readSync(journal, header, 0, HEADER_BYTES, 0);
  const isLittle = header.readUInt32BE(0) === LITTLE_ENDIAN;
  let sum: Sum = [header.readInt32BE(24), header.readInt32BE(28)];
  const frame = Buffer.alloc(FRAME_HEADER_BYTES + pageBytes);
  for (let at = HEADER_BYTES; readSync(journal, frame, 0, frame.length, at) === frame.length; at += frame.length) {
    sum = add(add(sum, frame.subarray(0, 8), isLittle), frame.subarray(FRAME_HEADER_BYTES), isLittle);
    if (sum[0] !== frame.readInt32BE(16) || sum[1] !== frame.readInt32BE(20)) break;
    transaction.set(frame.readUInt32BE(0) - 1, { descriptor: journal, at: at + FRAME_HEADER_BYTES });
    const left = frame.readUInt32BE(4);
    if (left === 0) continue;
    pages = left;
    for (const [page, place] of transaction) newer.set(page, place);
    transaction.clear();
  }
  return { newer, pages };
}

/** Of a journal whose sums are of words in this order. */
const LITTLE_ENDIAN = 0x377f0682;
type Sum = readonly [number, number];

/** Goes on with the sum over a journal (https://www.sqlite.org/fileformat2.html#checksum_algorithm). */
function add([first, second]: Sum, bytes: Buffer, isLittle: boolean): Sum {
  const words = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let [s0, s1] = [first, second];
  for (let at = 0; at < bytes.length; at += 8) {
    s0 = (s0 + words.getInt32(at, isLittle) + s1) | 0;
    s1 = (s1 + words.getInt32(at + 4, isLittle) + s0) | 0;
  }
  return [s0, s1];
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
  }
}
