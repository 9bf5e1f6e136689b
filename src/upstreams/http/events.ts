/*
 * Server-sent events, as far as the gateway needs them: where one ends. An event ends with an empty line; lines end with
 * LF, CR, or both.
 */

const LF = 0x0a;
const CR = 0x0d;

export function createEventScan() {
  let isLineEmpty = true;
  let wasCr = false;
  /** The last byte ended an event. */
  let isOver = false;
  function ends(piece: Buffer): readonly number[] {
    const found: number[] = [];
    for (let at = 0; at < piece.length; at += 1) {
      const byte = piece[at];
      if (byte === LF && wasCr) {
        wasCr = false;
        // The second half of the line's end.
        if (isOver) found[at === 0 ? 0 : found.length - 1] = at + 1;
        continue;
      }
      wasCr = byte === CR;
      const isEnd = wasCr || byte === LF;
      isOver = isEnd && isLineEmpty;
      if (isOver) found.push(at + 1);
      isLineEmpty = isEnd;
    }
    return found;
  }
  return {
    /**
     * Just behind each event that is over with this piece, in bytes from its beginning. Where a piece begins with the
     * second half of the line's end that ended an event, so is that.
     */
    ends,
    /** How many bytes of this piece belong to events that are over with it; 0 if none ends in it. */
    over: (piece: Buffer): number => ends(piece).at(-1) ?? 0,
  };
}

/** Finds the next end of a line, either byte of one. Each byte is looked at once. */
export function lineEnds(bytes: Buffer): { next(from: number): number | null } {
  let lf = -2;
  let cr = -2;
  const after = (known: number, from: number, byte: number): number =>
    known === -1 || known >= from ? known : bytes.indexOf(byte, from);
  return {
    next(from) {
      lf = after(lf, from, LF);
      cr = after(cr, from, CR);
      if (lf === -1 || cr === -1) return Math.max(lf, cr) === -1 ? null : Math.max(lf, cr);
      return Math.min(lf, cr);
    },
  };
}

/** Just behind the first event that ends in these bytes; 0 if none does. */
export function endOfEvent(bytes: Buffer): number {
  const ends = ['\n\n', '\r\n\r\n', '\r\r'].flatMap((end) => {
    const at = bytes.indexOf(end);
    return at === -1 ? [] : [at + end.length];
  });
  return ends.length === 0 ? 0 : Math.min(...ends);
}

export function isEventStream(contentType: string | readonly string[] | undefined): boolean {
  return typeof contentType === 'string' && /^text\/event-stream\s*(?:;|$)/i.test(contentType);
}
