import { randomFillSync } from 'node:crypto';
import { monotonicFactory } from 'ulid';

/** One system call fills this many bytes; asking for a few at a time would be most of what an id costs. */
const POOL_BYTES = 16_384;

const pool = Buffer.alloc(POOL_BYTES);
let used = POOL_BYTES;

/** Cryptographically random bytes, at most 1024, each given out once and wiped from the pool. */
export function randomPooled(length: number): Buffer {
  if (length > 1024) throw new RangeError('at most 1024 bytes come from the pool at a time');
  if (used + length > POOL_BYTES) {
    randomFillSync(pool);
    used = 0;
  }
  const taken = Buffer.from(pool.subarray(used, used + length));
  pool.fill(0, used, used + length);
  used += length;
  return taken;
}

const ulid = monotonicFactory(() => randomPooled(2).readUInt16BE() / 65_536);

/** A fresh id: the prefix, `_` and a ULID in lower case. */
export function newId(prefix: string): string {
  return `${prefix}_${ulid().toLowerCase()}`;
}
