import { Gathered } from '../../bytes/gathered.ts';
import { parseStrictJsonInSlices } from '../../json/strict-in-slices.ts';
import { type JsonLimits, LARGE_TEXT, parseStrictJson, type StrictJson } from '../../json/strict.ts';

export class TooLong extends Error {
  override readonly name = 'TooLong';
  constructor(what: string, most: string) {
    super(`${what} is longer than the ${most} that are read`);
  }
}

/** An answer that is no stream. @throws TooLong */
export async function wholeOf(body: AsyncIterable<Buffer>, mostBytes: number): Promise<Buffer> {
  const whole = new Gathered();
  for await (const piece of body) {
    if (whole.byteLength + piece.byteLength > mostBytes) throw new TooLong('the answer', `${mostBytes} bytes`);
    whole.add(piece);
  }
  return whole.take();
}

/** What a server says in one message. */
const MESSAGE_LIMITS = { depth: 128, values: 200_000, name: 10_000, members: 20_000 } satisfies JsonLimits;

/** Reads what a server says strictly; a long text in parts, since it must not keep all others waiting. */
export async function readStrictly(bytes: Buffer): Promise<StrictJson> {
  return bytes.byteLength < LARGE_TEXT
    ? parseStrictJson(bytes, MESSAGE_LIMITS)
    : parseStrictJsonInSlices(bytes, MESSAGE_LIMITS);
}
