import { Readable } from 'node:stream';

/**
 * A stream of what a generator gives. Whoever reads it hears of an error as long as he reads. One that comes after he has
 * left (a piece was still being read, or the gate was asked once more) is nobody's, and would end the process.
 */
export function ownedStream(pieces: AsyncIterable<Buffer>): Readable {
  return Readable.from(pieces, { objectMode: false }).on('error', () => {});
}
