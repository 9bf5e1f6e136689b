import { endOfEvent } from '../http/events.ts';

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

/** An event is longer than what is read. */
export class EventTooLong extends Error {
  override readonly name = 'EventTooLong';
}

/**
 * The events of a stream, in order. What comes after the last whole event is not one: a stream that broke off there has
 * not said it.
 * @throws EventTooLong
 */
export async function* serverEvents(body: AsyncIterable<Buffer>, mostBytes: number): AsyncGenerator<ServerEvent> {
  let pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of body) {
    pieces.push(piece);
    length += piece.byteLength;
    // Most events come whole. A long one is joined when a line in it is empty, which it has once.
    let rest = pieces.length === 1 ? piece : Buffer.concat(pieces, length);
    for (let end = endOfEvent(rest); end > 0; end = endOfEvent(rest)) {
      yield readEvent(rest.subarray(0, end));
      rest = rest.subarray(end);
    }
    if (rest.byteLength > mostBytes) throw new EventTooLong(`an event is longer than ${mostBytes} bytes`);
    pieces = rest.byteLength === 0 ? [] : [rest];
    length = rest.byteLength;
  }
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
