import { setImmediate as others } from 'node:timers/promises';
import { Transform } from 'node:stream';
import { Gathered } from '../bytes/gathered.ts';

/** A field of JSON answers that holds an address: the names that lead to it; `*` is any member or element. */
export type LinkField = readonly string[];

/** The text is not JSON that can be followed to its links, so nobody knows which addresses it holds. */
export class LinksUnreadable extends Error {
  override readonly name = 'LinksUnreadable';
  constructor(why: string) {
    super(`The links in the upstream's answer cannot be read: ${why}.`);
  }
}

/** Whether the answer is JSON, by its content type. Only such answers are looked into. */
export function isJson(contentType: string | readonly string[] | undefined): boolean {
  return typeof contentType === 'string' && /^(application|text)\/([\w.-]+\+)?json\s*(;|$)/i.test(contentType);
}

/** Longest address that is read, and longest name of a member that can be one of a field, bytes. */
const LONGEST = 16_384;
const DEEPEST = 1000;
/** Bytes of an answer that is there as a whole that are read at a time. */
const PIECE = 262_144;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const [COMMA, COLON, OPEN_LIST, CLOSE_LIST, OPEN, CLOSE] = [0x2c, 0x3a, 0x5b, 0x5d, 0x7b, 0x7d];

const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];
/** Bytes that numbers and words are made of. */
const IN_WORD = Uint8Array.from({ length: 256 }, (_, byte) =>
  /[-+.0-9A-Za-z]/.test(String.fromCharCode(byte)) ? 1 : 0,
);

/** A list or an object that is open, with the fields that go through it. */
interface Open {
  readonly isList: boolean;
  readonly fields: readonly LinkField[];
}

/**
 * Rewrites the addresses in some fields of a JSON text that comes in pieces. Every other byte stays as it is. Memory
 * does not grow with the text.
 * @param own an address as the caller may have it
 */
export class LinkRewriter {
  readonly #own: (address: string) => string;
  readonly #open: Open[] = [];
  #expects: 'value' | 'value_or_end' | 'name' | 'name_or_end' | 'colon' | 'comma_or_end' | 'nothing' = 'value';
  /** Fields that go through the value that comes next. */
  #fields: readonly LinkField[];
  /** Inside a text: a name, an address, or another one. */
  #text: 'none' | 'name' | 'link' | 'other' = 'none';
  #escaped = false;
  /** Bytes of the name or address so far, without its quotes. */
  readonly #held = new Gathered();
  /** A name is too long for any field. */
  #isTooLong = false;
  /** Bytes of the mark at the beginning that were read. */
  #mark = 0;

  constructor(fields: readonly LinkField[], own: (address: string) => string) {
    this.#fields = fields;
    this.#own = own;
  }

  /** What of the text can go on. @throws LinksUnreadable */
  write(chunk: Buffer): Buffer {
    const pieces: Buffer[] = [];
    /** From here on nothing was put out yet. */
    let from = 0;
    let at = 0;
    for (; at < chunk.byteLength && chunk[at] === BYTE_ORDER_MARK[this.#mark]; at += 1) this.#mark += 1;
    if (at < chunk.byteLength) this.#mark = BYTE_ORDER_MARK.length;
    while (at < chunk.byteLength) {
      if (this.#text === 'none') {
        const byte = chunk[at] ?? 0;
        at += 1;
        if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) continue;
        this.#take(byte);
        if (this.#begun() === 'link') {
          pieces.push(chunk.subarray(from, at - 1));
          from = at;
        }
        continue;
      }
      const end = this.#endOfText(chunk, at);
      if (this.#text === 'name' || this.#text === 'link') this.#hold(chunk.subarray(at, end));
      at = end;
      if (at === chunk.byteLength) break;
      at += 1;
      if (this.#text === 'link') {
        pieces.push(Buffer.from(JSON.stringify(this.#rewritten()), 'utf8'));
        from = at;
      } else if (this.#text === 'name') this.#named();
      this.#text = 'none';
    }
    if (this.#text !== 'link') pieces.push(chunk.subarray(from));
    return pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces);
  }

  /** What began with the last byte. A method, since the compiler takes the field for what it was before. */
  #begun(): 'none' | 'name' | 'link' | 'other' {
    return this.#text;
  }

  /** Takes one byte outside of texts. */
  #take(byte: number): void {
    switch (byte) {
      case QUOTE:
        return this.#beginText();
      case COLON:
        if (this.#expects !== 'colon') throw new LinksUnreadable('it is not JSON');
        this.#expects = 'value';
        return;
      case COMMA: {
        const open = this.#open.at(-1);
        if (this.#expects !== 'comma_or_end' || open === undefined) throw new LinksUnreadable('it is not JSON');
        this.#expects = open.isList ? 'value' : 'name';
        if (open.isList) this.#fields = through(open.fields, this.#open.length - 1, null);
        return;
      }
      case OPEN:
      case OPEN_LIST: {
        if (!this.#takesValue()) throw new LinksUnreadable('it is not JSON');
        if (this.#open.length === DEEPEST) throw new LinksUnreadable(`it is nested more than ${DEEPEST} deep`);
        const isList = byte === OPEN_LIST;
        const depth = this.#open.length;
        const fields = this.#fields.filter((field) => field.length > depth);
        this.#open.push({ isList, fields });
        this.#expects = isList ? 'value_or_end' : 'name_or_end';
        if (isList) this.#fields = through(fields, depth, null);
        return;
      }
      case CLOSE:
      case CLOSE_LIST: {
        const closed = this.#open.pop();
        const isList = byte === CLOSE_LIST;
        const mayEnd = this.#expects === 'comma_or_end' || this.#expects === (isList ? 'value_or_end' : 'name_or_end');
        if (closed?.isList !== isList || !mayEnd) throw new LinksUnreadable('it is not JSON');
        this.#ended();
        return;
      }
      default:
        // A number or a word, of which each byte comes here.
        if (IN_WORD[byte] !== 1) throw new LinksUnreadable('it is not JSON');
        if (this.#takesValue()) this.#ended();
        else if (this.#expects !== 'comma_or_end' && this.#expects !== 'nothing')
          throw new LinksUnreadable('it is not JSON');
    }
  }

  #takesValue(): boolean {
    return this.#expects === 'value' || this.#expects === 'value_or_end';
  }

  #beginText(): void {
    this.#held.take();
    this.#isTooLong = false;
    this.#escaped = false;
    if (this.#expects === 'name' || this.#expects === 'name_or_end') {
      this.#text = 'name';
      return;
    }
    if (!this.#takesValue()) throw new LinksUnreadable('it is not JSON');
    const depth = this.#open.length;
    this.#text = depth > 0 && this.#fields.some((field) => field.length === depth) ? 'link' : 'other';
    this.#ended();
  }

  /** A value is over. */
  #ended(): void {
    this.#expects = this.#open.length === 0 ? 'nothing' : 'comma_or_end';
  }

  /** Index of the quote that ends the text, or of the end of the chunk. */
  #endOfText(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.byteLength; at += 1) {
      if (this.#escaped) this.#escaped = false;
      else if (chunk[at] === BACKSLASH) this.#escaped = true;
      else if (chunk[at] === QUOTE) return at;
    }
    return chunk.byteLength;
  }

  #hold(bytes: Buffer): void {
    if (this.#held.byteLength + bytes.byteLength <= LONGEST) this.#held.add(bytes);
    else if (this.#text === 'link') throw new LinksUnreadable(`an address has more than ${LONGEST} bytes`);
    else this.#isTooLong = true;
  }

  #named(): void {
    const open = this.#open.at(-1);
    const name = this.#isTooLong ? null : textOf(this.#held.take());
    this.#fields = through(open?.fields ?? [], this.#open.length - 1, name);
    this.#expects = 'colon';
  }

  #rewritten(): string {
    const address = textOf(this.#held.take());
    if (address === null) throw new LinksUnreadable('an address is no text of JSON');
    return this.#own(address);
  }
}

/** The fields that go on with a name; in a list, and for a name that is too long, those that take any. */
function through(fields: readonly LinkField[], depth: number, name: string | null): readonly LinkField[] {
  return fields.length === 0 ? fields : fields.filter((field) => field[depth] === '*' || field[depth] === name);
}

function textOf(held: Buffer): string | null {
  try {
    const text: unknown = JSON.parse(`"${held.toString('utf8')}"`);
    return typeof text === 'string' ? text : null;
  } catch {
    return null;
  }
}

/** A stream of JSON with its links rewritten. It fails with {@link LinksUnreadable}. */
export function linkStream(fields: readonly LinkField[], own: (address: string) => string): Transform {
  const rewriter = new LinkRewriter(fields, own);
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      try {
        done(null, rewriter.write(chunk));
      } catch (error) {
        done(error instanceof Error ? error : new Error(String(error)));
      }
    },
  });
}

/** A stream that fails with its first bytes: they are compressed though nobody asked for that. */
export function unreadable(): Transform {
  return new Transform({ transform: (_chunk, _encoding, done) => done(new LinksUnreadable('it is compressed')) });
}

/** A whole text with its links rewritten, a part at a time. @throws LinksUnreadable */
export async function rewriteLinks(
  text: Buffer,
  fields: readonly LinkField[],
  own: (address: string) => string,
): Promise<Buffer> {
  const rewriter = new LinkRewriter(fields, own);
  const pieces: Buffer[] = [];
  for (let at = 0; at < text.byteLength; at += PIECE) {
    if (at > 0) await others();
    pieces.push(rewriter.write(text.subarray(at, at + PIECE)));
  }
  return Buffer.concat(pieces);
}
