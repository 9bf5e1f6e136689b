import { parseDuration, parseSize } from './units.ts';

/** The least and the most of a duration or a size, as the schema writes them. */
export interface Bounds {
  readonly min: string;
  readonly max: string;
}

/** Whether a text is a duration within bounds, or none at all: the pattern reports a text of another form. */
export function isDurationWithin(bounds: Bounds, text: string): boolean {
  return isWithin(text, bounds, parseDuration);
}

/** The same for a size. */
export function isSizeWithin(bounds: Bounds, text: string): boolean {
  return isWithin(text, bounds, parseSize);
}

/** A number too large to parse is out of bounds. */
function isWithin(text: string, bounds: Bounds, parse: (text: string) => number | null): boolean {
  const value = parse(text);
  if (value === null) return !/^[0-9]/.test(text);
  return value >= (parse(bounds.min) ?? 0) && value <= (parse(bounds.max) ?? Infinity);
}
