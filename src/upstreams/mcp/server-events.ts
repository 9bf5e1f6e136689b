import { createEventScan } from '../http/events.ts';
import { TooLong } from './whole-answer.ts';

/** An event of a stream, whole. */
export interface ServerEvent {
  /** Its bytes, with the empty line at its end. */
  readonly bytes: Buffer;
  /** Its data, lines joined; `null` where it has none. */
  readonly data: string | null;
  readonly id: string | null;
  readonly retryMs: number | null;
  /** The lines that are no data, as they came, each with a line end. */
  readonly beside: string;
}

/**
 * The events of a stream, in order. What comes after the last whole event is not one: a stream that broke off there has
 * not said it.
 * @throws TooLong
 */
export async function* serverEvents(body: AsyncIterable<Buffer>, mostBytes: number): AsyncGenerator<ServerEvent> {
  const scan = createEventScan();
  let held: Buffer[] = [];
  let length = 0;
  for await (const piece of body) {
    let from = 0;
    for (const end of scan.ends(piece)) {
      const last = piece.subarray(from, end);
      yield readEvent(held.length === 0 ? last : Buffer.concat([...held, last]));
      held = [];
      length = 0;
      from = end;
    }
    if (from === piece.byteLength) continue;
    held.push(piece.subarray(from));
    length += piece.byteLength - from;
    if (length > mostBytes) throw new TooLong('an event', mostBytes);
  }
}

/** The bytes of an event with other data. */
export function eventOf({ beside }: Pick<ServerEvent, 'beside'>, data: Buffer): Buffer {
  return Buffer.from(`${beside}data: ${data.toString()}\n\n`);
}

function readEvent(bytes: Buffer): ServerEvent {
  const data: string[] = [];
  let id: string | null = null;
  let retryMs: number | null = null;
  let beside = '';
  for (const line of bytes
    .toString('utf8')
    .replace(/^\ufeff/, '')
    .split(/\r\n|\n|\r/)) {
    if (line === '') continue;
    const colon = line.indexOf(':');
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'data') {
      data.push(value);
      continue;
    }
    if (name === 'id' && !value.includes('\0')) id = value;
    if (name === 'retry' && /^\d{1,9}$/.test(value)) retryMs = Number(value);
    beside += `${line}\n`;
  }
  return { bytes, data: data.length === 0 ? null : data.join('\n'), id, retryMs, beside };
}
