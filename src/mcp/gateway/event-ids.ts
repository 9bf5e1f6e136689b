import { Transform } from 'node:stream';
import type { KeyObject } from 'node:crypto';
import type { Json } from '../../json/value.ts';
import { lineEnds } from '../../upstreams/http/events.ts';
import { MAX_ID, withMark, withoutMark } from './marks.ts';
import type { SessionOwner } from './sessions.ts';

/** What the id of an event is good for: to go on with a stream of this agent, in this session. */
export interface EventOwner extends SessionOwner {
  /** The server's own id of it; `null` outside of sessions. */
  readonly session: string | null;
}

const ID = Buffer.from('id:');
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
/** Longest line that may be one with an id which gets a mark, bytes. */
const LONGEST = MAX_ID + 8;

/** The id of an event as a client gave it back, without its mark; `null` if it is none of this session of this agent. */
export function openEventId(key: KeyObject, owner: EventOwner, marked: string): string | null {
  return withoutMark(key, ofEvent(owner), marked);
}

/**
 * Puts marks to the ids of events while they pass. Servers go by the id alone when a client takes up a stream again
 * (the official SDK does), so without one, an id that somebody has seen or guessed gives him what another was told.
 * Only a line that may become an id is ever held back.
 */
export class EventIdMarks {
  readonly #mark: (id: string) => string;
  /** The beginning of a line that may be one with an id. */
  #held: Buffer = Buffer.alloc(0);
  #isLineStart = true;
  #isFirst = true;

  constructor(key: KeyObject, owner: EventOwner) {
    const of = ofEvent(owner);
    this.#mark = (id) => withMark(key, of, id);
  }

  /** The bytes that can go on now. */
  write(piece: Buffer): Buffer {
    let bytes = this.#held.length === 0 ? piece : Buffer.concat([this.#held, piece]);
    this.#held = Buffer.alloc(0);
    const passed: Buffer[] = [];
    if (this.#isFirst) {
      const mark = bytes.subarray(0, BYTE_ORDER_MARK.length);
      // Clients leave one out at the beginning of a stream.
      if (mark.length < BYTE_ORDER_MARK.length && mark.equals(BYTE_ORDER_MARK.subarray(0, mark.length)))
        return this.#hold(bytes, passed);
      this.#isFirst = false;
      if (mark.equals(BYTE_ORDER_MARK)) {
        passed.push(mark);
        bytes = bytes.subarray(mark.length);
      }
    }
    let from = 0;
    let at = 0;
    const ends = lineEnds(bytes);
    while (at < bytes.length) {
      const end = ends.next(at);
      if (this.#isLineStart) {
        const begin = bytes.subarray(at, Math.min(end ?? bytes.length, at + ID.length));
        const mayBeId = begin.equals(ID.subarray(0, begin.length)) && begin.length > 0;
        if (end === null && mayBeId && bytes.length - at <= LONGEST) {
          passed.push(bytes.subarray(from, at));
          return this.#hold(bytes.subarray(at), passed);
        }
        if (end !== null && begin.equals(ID) && end - at <= LONGEST) {
          passed.push(bytes.subarray(from, at), this.#lineOf(bytes.subarray(at, end)));
          from = end;
        }
      }
      this.#isLineStart = end !== null;
      at = end === null ? bytes.length : end + 1;
    }
    passed.push(bytes.subarray(from));
    return passed.length === 1 ? (passed[0] ?? piece) : Buffer.concat(passed);
  }

  /** What was held back, where the stream ends without the end of that line. It is no whole event. */
  rest(): Buffer {
    return this.#held;
  }

  #hold(bytes: Buffer, passed: readonly Buffer[]): Buffer {
    this.#held = Buffer.from(bytes);
    return Buffer.concat(passed);
  }

  #lineOf(line: Buffer): Buffer {
    const id = line.subarray(ID.length).toString('latin1').replace(/^ /, '');
    // An empty one takes back what was said before. Others than these cannot be sent in a header.
    return /^[\x20-\x7e]+$/.test(id) ? Buffer.from(`id: ${this.#mark(id)}`) : line;
  }
}

export function markedEvents(marks: EventIdMarks): Transform {
  return new Transform({
    transform(piece: Buffer, _encoding, done) {
      try {
        const passed = marks.write(piece);
        done(null, passed.length === 0 ? undefined : passed);
      } catch (error) {
        done(error instanceof Error ? error : new Error(String(error)));
      }
    },
    flush(done) {
      done(null, marks.rest());
    },
  });
}

function ofEvent({ upstream, workspace, agentId, session }: EventOwner): readonly Json[] {
  return ['mcp event', 1, upstream, workspace, agentId, session];
}
