/**
 * Records are stored as JSON documents beside the few columns that are searched. Only this store writes the documents,
 * from typed values, so reading one needs no check of its shape.
 */
export function decode<T>(document: SqlDocument): T {
  if (typeof document !== 'string') throw new TypeError('a document column holds something else than text');
  return JSON.parse(document);
}

type SqlDocument = string | number | null | undefined;

/**
 * A string as a searched column; different strings give different columns. SQLite sometimes ends text at a NUL, and
 * UTF-8 has no form for a lone surrogate. Such strings are escaped and marked as escaped.
 */
export function columnText(plain: string): string {
  const escape = !plain.isWellFormed() || plain.includes('\0') || plain.startsWith('\u0001');
  return escape ? `\u0001${JSON.stringify(plain)}` : plain;
}

/** The string from which {@link columnText} made a column. */
export function plainText(column: SqlDocument): string {
  const stored = text(column);
  return stored.startsWith('\u0001') ? decode<string>(stored.slice(1)) : stored;
}

/** A column that must hold an integer. */
export function integer(value: SqlDocument): number {
  if (typeof value !== 'number') throw new TypeError('an integer column holds something else');
  return value;
}

/** A column that must hold text. */
export function text(value: SqlDocument): string {
  if (typeof value !== 'string') throw new TypeError('a text column holds something else');
  return value;
}
