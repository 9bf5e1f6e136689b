/**
 * Records are kept as JSON documents beside the few columns that are searched. Documents are written by this store
 * from typed values only, so reading one back needs no check of its shape.
 */
export function decode<T>(document: SqlDocument): T {
  if (typeof document !== 'string') throw new TypeError('a document column holds something else than text');
  return JSON.parse(document);
}

type SqlDocument = string | number | null | undefined;

/**
 * A string as a searched column: injective for every string. SQLite ends text at a NUL in places, and UTF-8 has no
 * form for a lone surrogate; such strings are escaped, and marked as escaped.
 */
export function columnText(plain: string): string {
  const escape = !plain.isWellFormed() || plain.includes('\0') || plain.startsWith('\u0001');
  return escape ? `\u0001${JSON.stringify(plain)}` : plain;
}

/** The string that {@link columnText} made a column of. */
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
