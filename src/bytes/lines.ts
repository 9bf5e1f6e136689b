import { Gathered } from './gathered.ts';

/** A line without its end, or the news that one is longer than allowed and was dropped. */
export type Line = { readonly kind: 'line'; readonly bytes: Buffer } | { readonly kind: 'too_long' };

const NEWLINE = 0x0a;
const RETURN = 0x0d;

/**
 * Cuts a stream of bytes into lines. At most `most` bytes are kept; of a longer line the news comes once, as soon as it
 * is too long, and the rest of it is dropped. What has no end yet is no line.
 */
export function lineSplitter(most: number): (chunk: Buffer) => readonly Line[] {
  const held = new Gathered();
  let isTooLong = false;

  function keep(part: Buffer, found: Line[]): void {
    if (isTooLong || part.length === 0) return;
    if (held.byteLength + part.length <= most) {
      held.add(part);
      return;
    }
    held.take();
    isTooLong = true;
    found.push({ kind: 'too_long' });
  }

  return (chunk) => {
    const found: Line[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      const last = chunk.subarray(start, end);
      if (!isTooLong && held.byteLength + last.length <= most)
        found.push({ kind: 'line', bytes: withoutReturn(held.takenWith(last)) });
      else keep(last, found);
      isTooLong = false;
      start = end + 1;
    }
    keep(chunk.subarray(start), found);
    return found;
  };
}

function withoutReturn(line: Buffer): Buffer {
  return line.at(-1) === RETURN ? line.subarray(0, -1) : line;
}
