import type { IncomingMessage } from 'node:http';
import { Gathered } from './gathered.ts';

/** A body that was read completely. */
export type ReadBody =
  | { readonly kind: 'body'; readonly bytes: Buffer }
  | { readonly kind: 'too_large' }
  /** The caller went away in the middle: there is nobody to answer and nothing to run. */
  | { readonly kind: 'gone' };

/** Pieces that a request may bring before it waits for its turn. Of a body in pieces of a kilobyte, that is a megabyte. */
const MOST_PIECES = 1_024;
/** Bytes that wait for the reader of a body before the sender is paused. */
const MOST_WAITING = 65_536;
/** Fewer bytes than these wait for others of the same turn. */
const FEW = 16_384;

/** Reads a request's body up to `limit` bytes. */
export function readBody(message: IncomingMessage, limit: number): Promise<ReadBody> {
  if (Number(message.headers['content-length'] ?? 0) > limit) return Promise.resolve({ kind: 'too_large' });
  return new Promise((resolve) => {
    const gathered = new Gathered();
    const count = pieceCount(message);
    const take = (piece: Buffer): void => {
      if (gathered.byteLength + piece.byteLength > limit) {
        message.pause().off('data', take);
        gathered.take();
        resolve({ kind: 'too_large' });
        return;
      }
      gathered.add(piece);
      count();
    };
    message.on('data', take);
    message.once('end', () => resolve({ kind: 'body', bytes: gathered.take() }));
    message.once('close', () => resolve({ kind: 'gone' }));
    message.on('error', () => resolve({ kind: 'gone' }));
  });
}

/**
 * A request's body as it arrives, small pieces together. It ends where the caller goes away too: whether all has come,
 * the message says. A reader that leaves early leaves the rest unread, and the connection open for the answer.
 */
export async function* bodyPieces(message: IncomingMessage): AsyncGenerator<Buffer> {
  const waiting = new Gathered();
  const count = pieceCount(message);
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
    if (waiting.byteLength >= MOST_WAITING) message.pause();
    if (waiting.byteLength >= FEW) wake();
    else wakeSoon();
    count();
  };
  const end = (): void => {
    isOver = true;
    wake();
  };
  message.on('data', take).once('end', end).once('close', end).on('error', end);
  try {
    while (!isOver || waiting.byteLength > 0) {
      if (waiting.byteLength === 0) {
        await new Promise<void>((resolve) => (wake = resolve));
        continue;
      }
      willWake = false;
      yield waiting.take();
      if (message.isPaused()) message.resume();
    }
  } finally {
    message.pause().off('data', take);
  }
}

/** Counts the pieces of one request, and makes a sender of very many wait. */
function pieceCount(message: IncomingMessage): () => void {
  let pieces = 0;
  return () => {
    pieces += 1;
    if (pieces < MOST_PIECES) return;
    pieces = 0;
    LINE.wait(message);
  };
}

const NOTHING = (): void => undefined;

/**
 * Requests that are read on in a later turn of the event loop, one in each turn: Node reads up to 2 MB of a connection
 * before it looks at another.
 */
class Line {
  readonly #waiting = new Set<IncomingMessage>();

  wait(message: IncomingMessage): void {
    if (this.#waiting.has(message)) return;
    // Else the message itself resumes its socket.
    message._read = NOTHING;
    message.socket.pause();
    if (this.#waiting.add(message).size === 1) setImmediate(this.#next);
  }

  readonly #next = (): void => {
    const [message] = this.#waiting;
    if (message !== undefined) {
      this.#waiting.delete(message);
      Reflect.deleteProperty(message, '_read');
      message.socket.resume();
    }
    if (this.#waiting.size > 0) setImmediate(this.#next);
  };
}

const LINE = new Line();
