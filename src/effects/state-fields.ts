import { type Json, type JsonObject, isJsonObject } from './json.ts';

const ARRAY_INDEX = /^(?:0|[1-9][0-9]{0,8})$/;

/**
 * Value of a field of a state. A field may be a path (`order.lines.0.sku`); a name that holds the dots literally wins
 * over a path, at every level, the longest name first.
 * @returns `undefined` where the state has no such field (`null` is a value)
 */
export function readField(state: JsonObject, field: string): Json | undefined {
  return readSegments(state, field.split('.'), 0);
}

function readSegments(value: Json, segments: readonly string[], from: number): Json | undefined {
  if (from === segments.length) return value;
  if (Array.isArray(value)) {
    const segment = segments[from];
    if (segment === undefined || !ARRAY_INDEX.test(segment)) return undefined;
    const element: Json | undefined = value[Number(segment)];
    return element === undefined ? undefined : readSegments(element, segments, from + 1);
  }
  if (!isJsonObject(value)) return undefined;
  // Each name leads to a node of its own, so the search is bounded by the size of the state.
  for (const length of from + 1 === segments.length ? ONE : nameLengths(value)) {
    const to = from + length;
    if (to > segments.length) continue;
    const name = length === 1 ? (segments[from] ?? '') : segments.slice(from, to).join('.');
    const member = Object.hasOwn(value, name) ? value[name] : undefined;
    if (member === undefined) continue;
    const found = readSegments(member, segments, to);
    if (found !== undefined) return found;
  }
  return undefined;
}

const ONE: readonly number[] = [1];
const lengthsOf = new WeakMap<JsonObject, readonly number[]>();

/**
 * How many segments the names of an object have, longest first. Only these are tried: a field may be as long as a
 * body, and joining it at every length would take time with the square of it.
 */
function nameLengths(value: JsonObject): readonly number[] {
  let lengths = lengthsOf.get(value);
  if (lengths === undefined) {
    const found = new Set(Object.keys(value).map((name) => name.split('.').length));
    lengths = [...found].sort((one, other) => other - one);
    lengthsOf.set(value, lengths);
  }
  return lengths;
}

/** Equality of JSON values: `1` equals `1.0`; order matters in arrays, not in objects. */
export function jsonEquals(left: Json, right: Json): boolean {
  if (left === right) return true;
  if (Array.isArray(left)) {
    return (
      Array.isArray(right) &&
      left.length === right.length &&
      left.every((item: Json, index) => {
        const other: Json | undefined = right[index];
        return other !== undefined && jsonEquals(item, other);
      })
    );
  }
  if (!isJsonObject(left) || !isJsonObject(right)) return false;
  const names = Object.keys(left);
  if (names.length !== Object.keys(right).length) return false;
  for (const name of names) {
    const mine = left[name];
    const theirs = Object.hasOwn(right, name) ? right[name] : undefined;
    if (mine === undefined || theirs === undefined || !jsonEquals(mine, theirs)) return false;
  }
  return true;
}
