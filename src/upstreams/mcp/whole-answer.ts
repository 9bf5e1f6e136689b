import {
  type JsonLimits,
  LARGE_TEXT,
  parseStrictJson,
  parseStrictJsonInSlices,
  type StrictJson,
} from '../../json/strict.ts';

/** What a server says is longer than what is read of it. */
export class TooLong extends Error {
  override readonly name = 'TooLong';
  constructor(what: string, most: string) {
    super(`${what} is longer than the ${most} that are read`);
  }
}

/**
 * Bytes that come in pieces. Of pieces that are kept as they come, each costs a hundred bytes besides its own: a server
 * can send one byte at a time.
 */
export class Gathered {
  #bytes: Buffer = Buffer.alloc(0);
  #length = 0;

  get byteLength(): number {
    return this.#length;
  }

  add(piece: Buffer): void {
    const length = this.#length + piece.byteLength;
    if (length > this.#bytes.byteLength) {
      const larger = Buffer.allocUnsafe(Math.max(2 * this.#bytes.byteLength, length));
      this.#bytes.copy(larger, 0, 0, this.#length);
      this.#bytes = larger;
    }
    piece.copy(this.#bytes, this.#length);
    this.#length = length;
  }

  /** All of it, with one more piece at the end; then there is nothing here. */
  takenWith(last: Buffer): Buffer {
    if (this.#length === 0) return last;
    this.add(last);
    const taken = this.#bytes.subarray(0, this.#length);
    this.#bytes = Buffer.alloc(0);
    this.#length = 0;
    return taken;
  }
}

/** An answer that is no stream. @throws TooLong */
export async function wholeOf(body: AsyncIterable<Buffer>, mostBytes: number): Promise<Buffer> {
  const whole = new Gathered();
  for await (const piece of body) {
    if (whole.byteLength + piece.byteLength > mostBytes) throw new TooLong('the answer', `${mostBytes} bytes`);
    whole.add(piece);
  }
  return whole.takenWith(Buffer.alloc(0));
}

/** What a server says in one message. */
const SAID = { depth: 128, values: 200_000, name: 10_000, members: 20_000 } satisfies JsonLimits;

/** Reads what a server says strictly; a long text in parts, since it must not keep all others waiting. */
export async function readStrictly(bytes: Buffer): Promise<StrictJson> {
  return bytes.byteLength < LARGE_TEXT ? parseStrictJson(bytes, SAID) : parseStrictJsonInSlices(bytes, SAID);
}
