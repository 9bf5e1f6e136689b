/** A line without its end, or the news that one is longer than allowed and was dropped. */
export type Line = { readonly kind: 'line'; readonly bytes: Buffer } | { readonly kind: 'too_long' };

const NEWLINE = 0x0a;
const RETURN = 0x0d;

/**
 * Cuts a stream of bytes into lines. At most `most` bytes are kept; of a longer line the news comes once, as soon as it
 * is too long, and the rest of it is dropped. What has no end yet is no line.
 */
export function lineSplitter(most: number): (chunk: Buffer) => readonly Line[] {
  let parts: Buffer[] = [];
  let length = 0;
  let isTooLong = false;

  function keep(part: Buffer, found: Line[]): void {
    if (isTooLong || part.length === 0) return;
    length += part.length;
    if (length <= most) {
      parts.push(part);
      return;
    }
    parts = [];
    isTooLong = true;
    found.push({ kind: 'too_long' });
  }

  return (chunk) => {
    const found: Line[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      keep(chunk.subarray(start, end), found);
      if (!isTooLong)
        found.push({ kind: 'line', bytes: withoutReturn(parts.length === 1 ? parts[0] : Buffer.concat(parts)) });
      parts = [];
      length = 0;
      isTooLong = false;
      start = end + 1;
    }
    // A copy: a small rest must not keep the whole chunk in memory.
    keep(Buffer.from(chunk.subarray(start)), found);
    return found;
  };
}

function withoutReturn(line: Buffer = Buffer.alloc(0)): Buffer {
  return line.at(-1) === RETURN ? line.subarray(0, -1) : line;
}
