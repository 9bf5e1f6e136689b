/*
 * How Redis stores the names and texts of the port. UTF-8 has no form for a lone surrogate: a text with one is escaped
 * and marked as escaped.
 */

/** Comes before an escaped text. */
const MARK = '\u0001';

/** A text as Redis stores it; different texts stay different. */
export function stored(text: string): string {
  return text.isWellFormed() && !text.startsWith(MARK) ? text : `${MARK}${JSON.stringify(text)}`;
}

/** The text from which {@link stored} was made. */
export function unstored(text: string): string {
  if (!text.startsWith(MARK)) return text;
  const parsed: unknown = JSON.parse(text.slice(1));
  if (typeof parsed !== 'string') throw new TypeError('an escaped text is not a text');
  return parsed;
}

/** Characters that a kind in a key must not have, because they separate the parts of the key. */
const NOT_IN_KIND = /[^A-Za-z0-9_.-]/u;

/** A kind in the form that keys use: without blanks and colons. */
export function kindName(kind: string): string {
  return NOT_IN_KIND.test(kind) ? `%${Buffer.from(stored(kind)).toString('hex')}` : kind;
}

export function kindOf(name: string): string {
  return name.startsWith('%') ? unstored(Buffer.from(name.slice(1), 'hex').toString()) : name;
}

export function rowName(kind: string, id: string): string {
  return `r:${kindName(kind)}:${stored(id)}`;
}

/** The kind and id in a {@link rowName}. */
export function namedRow(name: string): { readonly kind: string; readonly id: string } {
  const colon = name.indexOf(':', 2);
  return { kind: kindOf(name.slice(2, colon)), id: unstored(name.slice(colon + 1)) };
}

export function counterName(name: string): string {
  return `f:${stored(name)}`;
}

export function namedCounter(name: string): string {
  return unstored(name.slice(2));
}

/** In the ledger, in place of a name: this event is about the same as the one before. No name is this. */
export const SAME_ABOUT = MARK;

/** The name of what an event is about; `null` has its own name. */
export function aboutName(about: string | null): string {
  if (about === null) return '';
  return about === '' ? `${MARK}""` : stored(about);
}

export function namedAbout(name: string): string | null {
  return name === '' ? null : unstored(name);
}
