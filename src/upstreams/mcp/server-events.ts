import { isUtf8 } from 'node:buffer';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Gathered } from '../../bytes/gathered.ts';
import { createEventScan, lineEnds } from '../http/events.ts';
import { TooLong } from './whole-answer.ts';

/** Lines of one event: each takes time, however short it is. */
const MOST_LINES = 10_000;

/** Ids of one event, of which only the last counts: each gets a mark on its way to the client. */
const MOST_IDS = 16;

/** After so many events the rest waits for the next turn of the event loop. */
const EVENTS_A_TURN = 128;

const COLON = 0x3a;
const SPACE = 0x20;
const NOTHING = Buffer.alloc(0);

export interface ServerEvent {
  /** Its bytes, with the empty line at its end. */
  readonly bytes: Buffer;
  /** Its data, lines joined, in UTF-8; `null` where it has none, or nothing in it. */
  readonly data: Buffer | null;
  /** What it calls itself; `null` where it does not: then it is a message. */
  readonly name: string | null;
  readonly id: string | null;
  readonly retryMs: number | null;
  /** The lines that are no data, as they came, each with a line end. */
  readonly rest: string;
}

/**
 * The events of a stream, in order. What comes after the last whole event is not one: a stream that broke off there has
 * not said it.
 * @throws TooLong
 */
export async function* serverEvents(body: AsyncIterable<Buffer>, mostBytes: number): AsyncGenerator<ServerEvent> {
  const scan = createEventScan();
  const held = new Gathered();
  let events = 0;
  for await (const piece of body) {
    let from = 0;
    for (const end of scan.ends(piece)) {
      const last = piece.subarray(from, end);
      events += 1;
      if (events % EVENTS_A_TURN === 0) await nextTurn();
      yield readEvent(held.takenWith(last));
      from = end;
    }
    if (from === piece.byteLength) continue;
    held.add(piece.subarray(from));
    if (held.byteLength > mostBytes) throw new TooLong('an event', `${mostBytes} bytes`);
  }
}

/** The bytes of an event with other data, in one line. */
export function eventOf({ rest }: Pick<ServerEvent, 'rest'>, data: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${rest}data: `), data, Buffer.from('\n\n')]);
}

const BYTE_ORDER_MARK = Buffer.from('\ufeff');
const LINE_BREAK = Buffer.from('\n');

/** @throws TooLong */
function readEvent(bytes: Buffer): ServerEvent {
  const data: Buffer[] = [];
  let called: string | null = null;
  let id: string | null = null;
  let retryMs: number | null = null;
  let rest = '';
  let lines = 0;
  let ids = 0;
  const ends = lineEnds(bytes);
  let at = bytes.subarray(0, BYTE_ORDER_MARK.byteLength).equals(BYTE_ORDER_MARK) ? BYTE_ORDER_MARK.byteLength : 0;
  for (let end = ends.next(at); end !== null; at = end + 1, end = ends.next(at)) {
    if (end === at) continue;
    lines += 1;
    if (lines > MOST_LINES) throw new TooLong('an event', `${MOST_LINES} lines`);
    const line = bytes.subarray(at, end);
    const colon = line.indexOf(COLON);
    const name = line.toString('utf8', 0, colon === -1 ? line.byteLength : colon);
    const value = colon === -1 ? NOTHING : withoutSpace(line.subarray(colon + 1));
    if (name === 'data') {
      if (data.length > 0) data.push(LINE_BREAK);
      data.push(value);
      continue;
    }
    if (name === 'id') ids += 1;
    if (ids > MOST_IDS) throw new TooLong('an event', `${MOST_IDS} ids`);
    if (name === 'event') called = value.byteLength === 0 ? null : value.toString();
    if (name === 'id' && !value.includes(0)) id = value.toString();
    if (name === 'retry' && value.byteLength < 10 && /^\d{1,9}$/.test(value.toString())) retryMs = Number(value);
    rest += `${line.toString()}\n`;
  }
  const [only = NOTHING] = data;
  const whole = data.length <= 1 ? only : Buffer.concat(data);
  return { bytes, data: whole.byteLength === 0 ? null : inUtf8(whole), name: called, id, retryMs, rest };
}

/** A reader puts a sign in place of what is no UTF-8. */
function inUtf8(bytes: Buffer): Buffer {
  return isUtf8(bytes) ? bytes : Buffer.from(bytes.toString());
}

function withoutSpace(value: Buffer): Buffer {
  return value[0] === SPACE ? value.subarray(1) : value;
}
