import { closeSync, fdatasyncSync, fstatSync, fsyncSync, openSync, readSync, writeFileSync } from 'node:fs';

/** A backup that cannot be made or used, in words for people. */
export class BackupFault extends Error {}

/** So much is written before the disk has to have it. */
const PART_BYTES = 4 * 1024 * 1024;
/** So much is compared at once: the caches of a processor have it twice. */
const COMPARED_BYTES = 256 * 1024;
const NUMBER_BYTES = 4;

/**
 * The file of a database, and over it what {@link writeChanges} wrote, one after the other. Pages are counted from 0.
 * @throws BackupFault where one of these is cut off
 */
export function layered(base: number, changes: readonly number[]) {
  const header = Buffer.alloc(2);
  readSync(base, header, 0, header.length, 16);
  // 65,536 does not fit.
  const pageBytes = header.readUInt16BE() === 1 ? 65_536 : header.readUInt16BE();
  let pages = Math.floor(fstatSync(base).size / pageBytes);
  const newer = new Map<number, { readonly from: number; readonly at: number }>();
  for (const from of changes) {
    const count = (fstatSync(from).size - NUMBER_BYTES) / (pageBytes + NUMBER_BYTES);
    if (!Number.isInteger(count)) throw new BackupFault('The backup is damaged: its changes are cut off.');
    const index = Buffer.alloc((count + 1) * NUMBER_BYTES);
    readSync(from, index, 0, index.length, count * pageBytes);
    for (let n = 0; n < count; n += 1) newer.set(index.readUInt32BE(n * NUMBER_BYTES), { from, at: n * pageBytes });
    pages = index.readUInt32BE(count * NUMBER_BYTES);
  }
  return {
    pageBytes,
    /** Reads pages that follow each other, as many as there are and as fit. @returns how many bytes */
    read(first: number, into: Buffer): number {
      const length = Math.max(0, Math.min(into.length, (pages - first) * pageBytes));
      readSync(base, into, 0, length, first * pageBytes);
      for (let at = 0; at < length; at += pageBytes) {
        const page = newer.get(first + at / pageBytes);
        if (page !== undefined) readSync(page.from, into, at, pageBytes, page.at);
      }
      return length;
    },
  };
}

/** Writes an image into a file. */
export function writeImage({ pageBytes, read }: ReturnType<typeof layered>, to: string): void {
  writeInParts(to, (add) => {
    const part = Buffer.allocUnsafe(PART_BYTES);
    for (let first = 0, length = read(0, part); length > 0; length = read(first, part)) {
      add(part.subarray(0, length));
      first += length / pageBytes;
    }
  });
}

/**
 * Writes the pages of a file that differ from those of an image: first the pages, then their numbers, then how many pages
 * the file has. All of both are read and compared, so that nothing that changed can be missed, whoever changed it.
 */
export function writeChanges(source: number, { pageBytes, read }: ReturnType<typeof layered>, to: string): void {
  const [now, before] = [Buffer.allocUnsafe(COMPARED_BYTES), Buffer.allocUnsafe(COMPARED_BYTES)];
  const numbers: number[] = [];
  writeInParts(to, (add) => {
    let pages = 0;
    for (let length = -1; length !== 0; pages += length / pageBytes) {
      length = readSync(source, now, 0, now.length, pages * pageBytes);
      // A page that is being added is in the journal.
      length -= length % pageBytes;
      const known = read(pages, before);
      if (known >= length && now.compare(before, 0, length, 0, length) === 0) continue;
      for (let at = 0; at < length; at += pageBytes) {
        const end = at + pageBytes;
        if (end <= known && now.compare(before, at, end, at, end) === 0) continue;
        add(now.subarray(at, end));
        numbers.push(pages + at / pageBytes);
      }
    }
    const index = Buffer.alloc((numbers.length + 1) * NUMBER_BYTES);
    for (const [at, number] of [...numbers, pages].entries()) index.writeUInt32BE(number, at * NUMBER_BYTES);
    add(index);
  });
}

/** Writes a new file, which the disk then has, and has in parts. */
function writeInParts(file: string, fill: (add: (bytes: Buffer) => void) => void): void {
  const descriptor = openSync(file, 'wx', 0o600);
  let unsynced = 0;
  try {
    fill((bytes) => {
      writeFileSync(descriptor, bytes);
      unsynced += bytes.length;
      if (unsynced < PART_BYTES) return;
      fdatasyncSync(descriptor);
      unsynced = 0;
    });
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
