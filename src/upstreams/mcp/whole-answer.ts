import {
  type JsonLimits,
  LARGE_TEXT,
  parseStrictJson,
  parseStrictJsonInSlices,
  type StrictJson,
} from '../../json/strict.ts';

/** What a server says is longer than what is read of it. */
export class TooLong extends Error {
  override readonly name = 'TooLong';
  constructor(what: string, mostBytes: number) {
    super(`${what} is longer than the ${mostBytes} bytes that are read`);
  }
}

/** An answer that is no stream. @throws TooLong */
export async function wholeOf(body: AsyncIterable<Buffer>, mostBytes: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of body) {
    length += piece.byteLength;
    if (length > mostBytes) throw new TooLong('the answer', mostBytes);
    pieces.push(piece);
  }
  return Buffer.concat(pieces, length);
}

/** Reads what a server says strictly; a long text in parts, since it must not keep all others waiting. */
export async function readStrictly(bytes: Buffer, limits: JsonLimits): Promise<StrictJson> {
  return bytes.byteLength < LARGE_TEXT ? parseStrictJson(bytes, limits) : parseStrictJsonInSlices(bytes, limits);
}
