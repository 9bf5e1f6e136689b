import { isJsonObject, type JsonObject } from '../json/value.ts';

/** Stands for the rest of a path, of one segment or more: `*path`. */
export const REST = Symbol('rest');

/** Stands for a param that is a whole number: by that, `/comments/:id` and `/:number/comments` are told apart. */
export const NUMBER = Symbol('number');

/** The segments of a path: literal text, or `null` for a param; the last one may be the rest of the path. */
export type Segments = readonly (string | null | typeof NUMBER | typeof REST)[];

/** Whether a param of a path is a whole number, and nothing else, by the schema of its tool. */
export function isNumber(name: string, schema: JsonObject | null): boolean {
  const properties = schema?.['properties'];
  const declared = isJsonObject(properties) && Object.hasOwn(properties, name) ? properties[name] : undefined;
  return isJsonObject(declared) && declared['type'] === 'integer';
}

/** Whether a text is one, as a path has it. */
export function isNumberText(text: string): boolean {
  return /^-?[0-9]+$/.test(text);
}

/**
 * Whether some path fits both, and none of the two comes before the other: `/users/me` comes before `/users/:id`, and both
 * before `/users/*path`, but of `/a/:b` and `/:a/b` neither does: where `a` is a number, no path fits both.
 */
export function isAmbiguous(a: Segments, b: Segments): boolean {
  const [shorter, longer] = a.length < b.length ? [a, b] : [b, a];
  const overlap =
    (shorter.length === longer.length || (shorter.at(-1) === REST && longer.at(-1) !== '')) &&
    shorter.every((segment, index) => meet(segment, longer[index]) || meet(longer[index], segment));
  return overlap && isWithin(a, b) === isWithin(b, a);
}

/** Whether all that fits the one fits the other. */
export function isWithin(one: Segments, other: Segments): boolean {
  const isLong = other.at(-1) === REST ? one.length >= other.length && one.at(-1) !== '' : one.length === other.length;
  return isLong && other.every((segment, index) => fitsIn(one[index], segment));
}

function meet(one: Segments[number] | undefined, other: Segments[number] | undefined): boolean {
  if (one === NUMBER) return typeof other !== 'string' || isNumberText(other);
  return one === null || one === REST || one === other;
}

function fitsIn(one: Segments[number] | undefined, other: Segments[number]): boolean {
  return other === REST || (typeof other === 'string' ? one === other : one !== REST);
}
