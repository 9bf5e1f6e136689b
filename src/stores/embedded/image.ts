import { createHash } from 'node:crypto';
import { closeSync, fdatasyncSync, fstatSync, fsyncSync, openSync, readSync, writeFileSync } from 'node:fs';

/** A backup that cannot be made or used, in words for people. */
export class BackupFault extends Error {}

/** A database at one moment, as pages that are counted from 0. */
export interface Image {
  readonly pageBytes: number;
  readonly pages: number;
  /**
   * Reads pages that follow each other, as many as there are and as fit.
   * @returns how many bytes
   * @throws BackupFault where one is missing
   */
  read(first: number, into: Buffer): number;
}

/** Where the pages are that are newer than those in the file of a database. */
export type NewerPages = Map<number, { readonly descriptor: number; readonly at: number }>;

/** So much is written before the disk has to have it: after more at once, each sync of the gateway waits behind all of it. */
const PART_BYTES = 4 * 1024 * 1024;
/** So much is compared at once: the caches of a processor have it twice. */
const COMPARED_BYTES = 256 * 1024;
const NUMBER_BYTES = 4;
/** SQLite leaves out the page that has its locks (https://www.sqlite.org/fileformat2.html#the_lock_byte_page). */
const LOCK_BYTE = 2 ** 30;

/** The file of a database with newer pages over it. */
export function imageOf(descriptor: number, pageBytes: number, pages: number, newer: NewerPages): Image {
  const isLockPage = (page: number): boolean => page === LOCK_BYTE / pageBytes;
  return {
    pageBytes,
    pages,
    read(first, into) {
      const count = Math.max(0, Math.min(Math.floor(into.length / pageBytes), pages - first));
      if (count === 0) return 0;
      const found = readSync(descriptor, into, 0, count * pageBytes, first * pageBytes);
      for (let index = 0; index < count; index += 1) {
        const page = newer.get(first + index);
        const at = index * pageBytes;
        const end = at + pageBytes;
        if (page === undefined && end <= found) continue;
        if (page === undefined && isLockPage(first + index)) into.fill(0, at, end);
        else if (page === undefined || readSync(page.descriptor, into, at, pageBytes, page.at) < pageBytes)
          throw new BackupFault(`The database is damaged: page ${first + index + 1} of ${pages} is missing.`);
      }
      return count * pageBytes;
    },
  };
}

/** Writes all pages into a file. @returns the digest of that */
export function writeWhole(image: Image, to: string): string {
  return writeInParts(to, (add) => {
    const part = Buffer.allocUnsafe(PART_BYTES);
    for (let page = 0; page < image.pages; ) {
      const length = image.read(page, part);
      add(part.subarray(0, length));
      page += length / image.pageBytes;
    }
  });
}

/**
 * Writes the pages that differ from those of an earlier image: first the pages, then their numbers, then how many pages the
 * image has. All of both are read and compared, so that nothing that changed can be missed, whoever changed it.
 * @returns the digest of the file
 */
export function writeChanges(image: Image, earlier: Image, to: string): string {
  const { pageBytes, pages } = image;
  const [now, before] = [Buffer.allocUnsafe(COMPARED_BYTES), Buffer.allocUnsafe(COMPARED_BYTES)];
  return writeInParts(to, (add) => {
    const numbers: number[] = [];
    for (let first = 0, length = 0; first < pages; first += length / pageBytes) {
      length = image.read(first, now);
      const known = earlier.read(first, before);
      if (known === length && now.compare(before, 0, known, 0, length) === 0) continue;
      for (let at = 0; at < length; at += pageBytes) {
        const end = at + pageBytes;
        if (end <= known && now.compare(before, at, end, at, end) === 0) continue;
        add(now.subarray(at, end));
        numbers.push(first + at / pageBytes);
      }
    }
    const index = Buffer.alloc((numbers.length + 1) * NUMBER_BYTES);
    for (const [at, number] of [...numbers, pages].entries()) index.writeUInt32BE(number, at * NUMBER_BYTES);
    add(index);
  });
}

/** Lays what {@link writeChanges} wrote over an image. @returns how many pages there are then */
export function layOver(newer: NewerPages, descriptor: number, pageBytes: number): number {
  const { size } = fstatSync(descriptor);
  const count = (size - NUMBER_BYTES) / (pageBytes + NUMBER_BYTES);
  if (!Number.isInteger(count)) throw new BackupFault('The backup is damaged: its changes are cut off.');
  const index = Buffer.alloc((count + 1) * NUMBER_BYTES);
  readSync(descriptor, index, 0, index.length, count * pageBytes);
  for (let n = 0; n < count; n += 1) newer.set(index.readUInt32BE(n * NUMBER_BYTES), { descriptor, at: n * pageBytes });
  return index.readUInt32BE(count * NUMBER_BYTES);
}

/** Writes a new file, which the disk then has. @returns the digest of what was written */
function writeInParts(file: string, fill: (add: (bytes: Buffer) => void) => void): string {
  const descriptor = openSync(file, 'wx', 0o600);
  const digest = createHash('sha256');
  let unsynced = 0;
  try {
    fill((bytes) => {
      writeFileSync(descriptor, bytes);
      digest.update(bytes);
      unsynced += bytes.length;
      if (unsynced < PART_BYTES) return;
      fdatasyncSync(descriptor);
      unsynced = 0;
    });
    fsyncSync(descriptor);
    return digest.digest('hex');
  } finally {
    closeSync(descriptor);
  }
}
