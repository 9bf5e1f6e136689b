/*
 * A list of texts as MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), which scripts read with
 * `cmsgpack.unpack`. As arguments of its own, each would be written by the client, and made an object by the server.
 */

const FIX_STR = 0xa0;
const STR_32 = 0xdb;
const ARRAY_32 = 0xdd;
/** Of an array or text with its length. */
const HEADER_BYTES = 5;
/** The longest text whose length is in its first byte. */
const SHORT = 31;
/** The most bytes of a character that a string counts once. */
const BYTES_A_CHARACTER = 3;
const FIRST_BYTES = 64 * 1024;
/** More is given back after use. */
const KEPT_BYTES = 1024 * 1024;

/** A text, or two that become one: joined before, a long one would be copied once more. */
export type Word = string | readonly [string, string];

/** Packs texts. Keeps what it writes to from one use to the next. */
export class Packer {
  #bytes: Buffer = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #at = 0;

  /** @returns in a Buffer of its own */
  pack(...lists: readonly (readonly Word[])[]): Buffer {
    this.#at = HEADER_BYTES;
    let count = 0;
    for (const words of lists) {
      count += words.length;
      for (const word of words) this.#write(word);
    }
    this.#bytes[0] = ARRAY_32;
    this.#bytes.writeUInt32BE(count, 1);
    const packed = this.#moved(this.#at);
    if (this.#bytes.length > KEPT_BYTES) this.#bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
    return packed;
  }

  #write(word: Word): void {
    const [start, rest] = typeof word === 'string' ? ['', word] : word;
    const most = this.#at + HEADER_BYTES + (start.length + rest.length) * BYTES_A_CHARACTER;
    if (most > this.#bytes.length) this.#bytes = this.#moved(Math.max(most, this.#bytes.length * 2));
    if (start === '' && rest.length <= SHORT && this.#writeShort(rest)) return;
    const begin = this.#at + HEADER_BYTES;
    let end = begin + (start === '' ? 0 : this.#bytes.write(start, begin));
    end += this.#bytes.write(rest, end);
    this.#bytes[this.#at] = STR_32;
    this.#bytes.writeUInt32BE(end - begin, this.#at + 1);
    this.#at = end;
  }

  /** Most words are numbers and names: calling the encoder costs more than they do. @returns whether all of it is ASCII */
  #writeShort(word: string): boolean {
    const bytes = this.#bytes;
    const begin = this.#at + 1;
    for (let i = 0; i < word.length; i += 1) {
      const code = word.charCodeAt(i);
      if (code > 0x7f) return false;
      bytes[begin + i] = code;
    }
    bytes[this.#at] = FIX_STR + word.length;
    this.#at = begin + word.length;
    return true;
  }

  /** What was written, in another Buffer. */
  #moved(size: number): Buffer {
    const other = Buffer.allocUnsafeSlow(size);
    this.#bytes.copy(other, 0, 0, this.#at);
    return other;
  }
}
