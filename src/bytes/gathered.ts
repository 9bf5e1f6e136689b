/** Smallest and largest block, bytes. Blocks grow with what is gathered: a short text does not take a large one. */
const LEAST_BLOCK = 1_024;
const MOST_BLOCK = 65_536;
const NOTHING = Buffer.alloc(0);

/**
 * Bytes that arrive in pieces. Kept as they come, pieces of one byte take 400 bytes each, so all but the first are copied
 * into blocks. Most texts come in one piece: nothing is copied then.
 */
export class Gathered {
  /** All before the block that is filled now. */
  #parts: Buffer[] = [];
  #block: Buffer = NOTHING;
  #filled = 0;
  #length = 0;

  get byteLength(): number {
    return this.#length;
  }

  add(piece: Buffer): void {
    const { byteLength } = piece;
    const isFirst = this.#length === 0;
    this.#length += byteLength;
    // A piece that is a small part of what was read with it would keep all of that in memory.
    if (isFirst && piece.buffer.byteLength <= 2 * byteLength) {
      this.#parts.push(piece);
      return;
    }
    for (let at = 0; at < byteLength; ) {
      if (this.#filled === this.#block.byteLength) this.#nextBlock(byteLength - at);
      const copied = piece.copy(this.#block, this.#filled, at);
      this.#filled += copied;
      at += copied;
    }
  }

  /** All of it; then there is nothing here. */
  take(): Buffer {
    const { byteLength } = this;
    if (this.#filled > 0) this.#parts.push(this.#block.subarray(0, this.#filled));
    const parts = this.#parts;
    this.#parts = [];
    this.#block = NOTHING;
    this.#filled = 0;
    this.#length = 0;
    const [only = NOTHING] = parts;
    return parts.length <= 1 ? only : Buffer.concat(parts, byteLength);
  }

  /** All of it, which stays here. */
  whole(): Buffer {
    const all = this.take();
    this.add(all);
    return all;
  }

  /** The same as {@link take} with one more piece at the end, which need not be kept. */
  takenWith(last: Buffer): Buffer {
    if (this.#length === 0) return last;
    this.add(last);
    return this.take();
  }

  #nextBlock(atLeast: number): void {
    if (this.#filled > 0) this.#parts.push(this.#block);
    this.#block = Buffer.allocUnsafe(Math.min(MOST_BLOCK, Math.max(LEAST_BLOCK, atLeast, this.#length)));
    this.#filled = 0;
  }
}
