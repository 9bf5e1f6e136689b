import { readSync } from 'node:fs';

/** Size of a journal's header, and of a frame before its page (https://www.sqlite.org/fileformat2.html#walformat). */
const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
const SALT_BYTES = 8;
/** Where a header, and that of a frame, has the two random numbers of a round of the journal. */
const SALTS_AT = 16;
const FRAME_SALTS_AT = 8;

/** Where frame `number`, counted from 0, begins in a journal. */
const frameAt = (number: number, pageBytes: number): number => HEADER_BYTES + number * (FRAME_HEADER_BYTES + pageBytes);

/** A frame belongs to the current round of the journal if it has the two random numbers of the journal's header. */
export function isFrameInUse(descriptor: number, count: number, pageBytes: number): boolean {
  const salts = Buffer.alloc(2 * SALT_BYTES);
  const read =
    readSync(descriptor, salts, 0, SALT_BYTES, SALTS_AT) +
    readSync(descriptor, salts, SALT_BYTES, SALT_BYTES, frameAt(count - 1, pageBytes) + FRAME_SALTS_AT);
  return read === salts.length && salts.compare(salts, 0, SALT_BYTES, SALT_BYTES) === 0;
}

/** What tells one round of a journal from the next, and from none. */
export function journalRound(descriptor: number): string {
  const salts = Buffer.alloc(SALT_BYTES);
  readSync(descriptor, salts, 0, SALT_BYTES, SALTS_AT);
  return salts.toString('hex');
}

/** How long the current round of a journal is so far, bytes: what stands behind it is of an earlier round. */
export function journalBytes(descriptor: number, size: number, pageBytes: number): number {
  let least = 0;
  let most = Math.max(0, Math.floor((size - HEADER_BYTES) / (FRAME_HEADER_BYTES + pageBytes)));
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (isFrameInUse(descriptor, middle, pageBytes)) least = middle;
    else most = middle - 1;
  }
  return least === 0 ? 0 : frameAt(least, pageBytes);
}
