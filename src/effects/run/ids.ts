import { randomFillSync } from 'node:crypto';

/** One system call fills this many bytes. Asking for a few bytes each time would be most of the cost of an id. */
const POOL_BYTES = 16_384;

const pool = Buffer.alloc(POOL_BYTES);
let used = POOL_BYTES;

/** Cryptographically random bytes, at most 1024. Each is given out once and wiped from the pool. */
export function randomPooled(length: number): Buffer {
  if (length > 1024) throw new RangeError('at most 1024 bytes come from the pool at a time');
  if (used + length > POOL_BYTES) {
    randomFillSync(pool);
    used = 0;
  }
  const taken = Buffer.allocUnsafe(length);
  pool.copy(taken, 0, used, used + length);
  pool.fill(0, used, used + length);
  used += length;
  return taken;
}

/** Crockford's base 32 in lower case, precomputed for two digits at a time. */
const DIGITS = '0123456789abcdefghjkmnpqrstvwxyz';
const PAIRS = Array.from({ length: 1024 }, (_, pair) => `${DIGITS[pair >> 5]}${DIGITS[pair & 31]}`);

/** Half of the 80 random bits of a ULID. Arithmetic on numbers of this size is exact and fast. */
const HALF = 2 ** 40;

let idTime = 0;
let high = 0;
let low = 0;
/** Time and upper half, which many ids in a row have in common. */
let commonText = '';

/**
 * A new id: the prefix, `_` and a ULID in lower case. Ids of one process always grow: within a millisecond, or when the
 * clock stops or goes back, the next id is the last one plus one.
 */
export function newId(prefix: string): string {
  const now = Date.now();
  if (now > idTime) {
    idTime = now;
    const random = randomPooled(10);
    // The top bit stays free, so that counting up never overflows.
    high = random.readUIntBE(0, 5) % (HALF / 2);
    low = random.readUIntBE(5, 5);
    commonText = commonOf(now);
  } else {
    low += 1;
    if (low === HALF) {
      low = 0;
      high += 1;
      commonText = commonOf(idTime);
    }
  }
  return `${prefix}_${commonText}${eightDigits(low)}`;
}

/** Writes a number below 2^40 with eight digits of base 32. */
function eightDigits(value: number): string {
  const upper = Math.floor(value / 2 ** 20);
  const lower = value % 2 ** 20;
  return `${PAIRS[upper >> 10]}${PAIRS[upper & 1023]}${PAIRS[lower >> 10]}${PAIRS[lower & 1023]}`;
}

function commonOf(time: number): string {
  return `${PAIRS[Math.floor(time / HALF)]}${eightDigits(time % HALF)}${eightDigits(high)}`;
}
