type Column = string | number | null | undefined;

/**
 * A string as a searched column; different strings give different columns. SQLite sometimes ends text at a NUL, and
 * UTF-8 has no form for a lone surrogate. Such strings are escaped and marked as escaped.
 */
export function columnText(plain: string): string {
  const escape = !plain.isWellFormed() || plain.includes('\0') || plain.startsWith('\u0001');
  return escape ? `\u0001${JSON.stringify(plain)}` : plain;
}

/** The string from which {@link columnText} made a column. */
export function plainText(column: Column): string {
  const stored = text(column);
  if (!stored.startsWith('\u0001')) return stored;
  const plain: string = JSON.parse(stored.slice(1));
  return plain;
}

export function integer(value: Column): number {
  if (typeof value !== 'number') throw new TypeError('an integer column holds something else');
  return value;
}

export function text(value: Column): string {
  if (typeof value !== 'string') throw new TypeError('a text column holds something else');
  return value;
}

/**
 * The same text in its own memory. A text that was cut out of a message keeps the whole message in memory. One that is
 * kept for longer than its transaction must not do that.
 */
export function ownText(text: string): string {
  return Buffer.from(text, 'utf16le').toString('utf16le');
}
