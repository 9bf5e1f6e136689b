import type { IncomingMessage, ServerResponse } from 'node:http';
import { PIECES_A_TURN } from './pieces-a-turn.ts';

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

/** A body that was read completely, or why it was not. */
export type ReadBody =
  | { readonly kind: 'body'; readonly bytes: Buffer }
  | { readonly kind: 'too_large' }
  /** In more pieces than are read; see {@link TinyPieces}. */
  | { readonly kind: 'tiny_pieces' }
  /** The caller went away in the middle: there is nobody to answer and nothing to run. */
  | { readonly kind: 'gone' };

/** Pieces of a body that may have any size. Node spends some microseconds on each, whatever it holds. */
const ANY_SIZE = PIECES_A_TURN;
/** The bytes that the pieces of a longer body have on average, at least. */
const LEAST_PIECE = 16;
/** Bytes that wait for the reader of a body before the sender is paused. */
const MOST_WAITING = 65_536;
/** Fewer bytes than these wait for others of the same turn. */
const FEW = 16_384;

/** A body in pieces so small that they cost many times what they hold: no client sends such. */
export class TinyPieces extends Error {
  static readonly DETAIL =
    `The body comes in ${ANY_SIZE} pieces of fewer than ${LEAST_PIECE} bytes. Nothing was done; send it in larger pieces.`;

  constructor() {
    super(TinyPieces.DETAIL);
  }
}

/** Reads a request's body up to `limit` bytes. */
export function readBody(message: IncomingMessage, limit: number): Promise<ReadBody> {
  return new Promise((resolve) => takeBody(message, limit, resolve));
}

/** The same, whole. @param refuse makes what is thrown where it is too large, or the caller has gone */
export async function wholeBody(
  message: IncomingMessage,
  limit: number,
  refuse: (code: 'too_large' | 'invalid_request', detail: string) => Error,
): Promise<Buffer> {
  const read = await readBody(message, limit);
  switch (read.kind) {
    case 'body':
      return read.bytes;
    case 'too_large':
      throw refuse('too_large', 'The body is larger than this gateway reads (limits.body).');
    case 'tiny_pieces':
      throw refuse('invalid_request', TinyPieces.DETAIL);
    case 'gone':
      throw refuse('invalid_request', 'The request cannot be read.');
  }
}

/** The same as {@link readBody} without a promise. @param done called once; may be called at once, and must not throw */
export function takeBody(message: IncomingMessage, limit: number, done: (read: ReadBody) => void): void {
  if (Number(message.headers['content-length'] ?? 0) > limit) {
    done({ kind: 'too_large' });
    return;
  }
  const gathered = new Gathered();
  const pieces = new Pieces(message);
  let isOver = false;
  const end = (read: ReadBody): void => {
    if (isOver) return;
    isOver = true;
    done(read);
  };
  const refuse = (kind: 'too_large' | 'tiny_pieces'): void => {
    message.pause().off('data', take);
    gathered.take();
    end({ kind });
  };
  const take = (piece: Buffer): void => {
    if (gathered.byteLength + piece.byteLength > limit) refuse('too_large');
    else if (pieces.areTiny(piece)) refuse('tiny_pieces');
    else gathered.add(piece);
  };
  const gone = (): void => end({ kind: 'gone' });
  // Not `once`, which makes an object for each: after the first end nothing more is done.
  message.on('data', take).on('end', () => end({ kind: 'body', bytes: gathered.take() }));
  message.on('close', gone).on('error', gone);
}

/**
 * A request's body as it arrives, small pieces together. It ends where the caller goes away too: whether all has come,
 * the message says. A reader that leaves early leaves the rest unread, and the connection open for the answer.
 * @throws TinyPieces
 */
export async function* bodyPieces(message: IncomingMessage): AsyncGenerator<Buffer> {
  const waiting = new Gathered();
  const pieces = new Pieces(message);
  let areTiny = false;
  let isOver = message.readableEnded || message.destroyed;
  let wake: () => void = () => undefined;
  let willWake = false;
  const wakeSoon = (): void => {
    if (willWake) return;
    willWake = true;
    setImmediate(() => wake());
  };
  const take = (piece: Buffer): void => {
    waiting.add(piece);
    areTiny = pieces.areTiny(piece);
    if (areTiny || waiting.byteLength >= MOST_WAITING) message.pause();
    if (areTiny || waiting.byteLength >= FEW) wake();
    else wakeSoon();
  };
  const end = (): void => {
    isOver = true;
    wake();
  };
  message.on('data', take).once('end', end).once('close', end).on('error', end);
  try {
    for (;;) {
      if (areTiny) throw new TinyPieces();
      if (waiting.byteLength > 0) {
        willWake = false;
        yield waiting.take();
        if (message.isPaused()) message.resume();
      } else if (isOver) return;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  } finally {
    message.pause().off('data', take);
  }
}

class Pieces {
  readonly #message: IncomingMessage;
  #count = 0;
  #byteLength = 0;

  constructor(message: IncomingMessage) {
    this.#message = message;
  }

  /** Whether a body, with its next piece, has too many for what it holds. */
  areTiny({ byteLength }: Buffer): boolean {
    this.#count += 1;
    this.#byteLength += byteLength;
    if (this.#count >= ANY_SIZE && this.#byteLength < this.#count * LEAST_PIECE) {
      dropTheRest(this.#message);
      return true;
    }
    if (this.#count % PIECES_A_TURN === 0) {
      this.#message.pause();
      setImmediate(() => this.#message.listenerCount('data') > 0 && this.#message.resume());
    }
    return false;
  }
}

/**
 * Reads nothing more of a body. What Node has read already it still parses, piece by piece: none of it is kept. By
 * `_read` the message would have its connection read on once it is answered.
 */
function dropTheRest(message: IncomingMessage): void {
  message.push = () => true;
  message._read = () => undefined;
  message.socket.pause();
}

/** Of more bytes a copy costs more than a write. */
const MOST_COPIED = 16_384;

/** Ends an answer. With a head that has not gone, few bytes are one text, and one write without a list of buffers. */
export function endWith(response: ServerResponse, body: Buffer | string): void {
  if (typeof body === 'string' || body.length > MOST_COPIED) response.end(body);
  else response.end(body.toString('latin1'), 'latin1');
}
