import { type Json, type JsonObject, isJsonArray, isJsonObject } from '../../json/value.ts';

/** Limits on the check of a state, so that no request takes long. */
export const CHECK_LIMITS = {
  /** Fields that one request may require, and conditions that it may set. */
  fields: 1_000,
  conditions: 1_000,
  /** Length of a field's name or path, characters. */
  field: 1_000,
  /** Segments of a path (`a.b.c` has three). */
  segments: 100,
  /** Steps of all look-ups and comparisons in one request. */
  effort: 100_000,
} as const;

export interface Effort {
  left: number;
}

/** Thrown when a request has used all its steps. */
export class EffortSpent extends Error {
  override readonly name = 'EffortSpent';
  constructor() {
    super(`comparing the state takes more than ${CHECK_LIMITS.effort} steps`);
  }
}

export function newEffort(): Effort {
  return { left: CHECK_LIMITS.effort };
}

/** Uses up steps. @throws EffortSpent */
export function spend(effort: Effort, steps: number): void {
  effort.left -= steps;
  if (effort.left < 0) throw new EffortSpent();
}

/** What is wrong with the size of a field name; `null` where the field may be looked up. */
export function fieldFault(field: string): string | null {
  if (field.length > CHECK_LIMITS.field) return `the name of a field has at most ${CHECK_LIMITS.field} characters`;
  return dotsIn(field) < CHECK_LIMITS.segments ? null : `a path has at most ${CHECK_LIMITS.segments} segments`;
}

const ARRAY_INDEX = /^(?:0|[1-9][0-9]{0,8})$/;

/**
 * The value of a field in a state. A field can be a path (`order.lines.0.sku`). At every level, a name that contains
 * the dots literally is preferred to a path, the longest name first.
 * @returns `undefined` where the state has no such field (`null` is a value)
 * @throws EffortSpent
 */
export function readField(state: JsonObject, field: string, effort: Effort): Json | undefined {
  return fieldFault(field) === null ? readSegments(state, field.split('.'), 0, effort) : undefined;
}

function readSegments(value: Json, segments: readonly string[], from: number, effort: Effort): Json | undefined {
  spend(effort, 1);
  if (from === segments.length) return value;
  if (isJsonArray(value)) {
    const segment = segments[from];
    if (segment === undefined || !ARRAY_INDEX.test(segment)) return undefined;
    const element: Json | undefined = value[Number(segment)];
    return element === undefined ? undefined : readSegments(element, segments, from + 1, effort);
  }
  if (!isJsonObject(value)) return undefined;
  // Where names contain dots, one path can be read in many ways. The effort limits how many are tried.
  for (const length of from + 1 === segments.length ? ONE : nameLengths(value)) {
    const to = from + length;
    if (to > segments.length) continue;
    const name = length === 1 ? (segments[from] ?? '') : segments.slice(from, to).join('.');
    spend(effort, 1 + (name.length >> 4));
    const member = Object.hasOwn(value, name) ? value[name] : undefined;
    if (member === undefined) continue;
    const found = readSegments(member, segments, to, effort);
    if (found !== undefined) return found;
  }
  return undefined;
}

const ONE: readonly number[] = [1];
const lengthsOf = new WeakMap<JsonObject, readonly number[]>();

/** The numbers of segments that the names of an object have, longest first. Only these are tried. */
function nameLengths(value: JsonObject): readonly number[] {
  let lengths = lengthsOf.get(value);
  if (lengths === undefined) {
    const found = new Set<number>();
    for (const name of Object.keys(value)) {
      const dots = dotsIn(name);
      if (dots < CHECK_LIMITS.segments) found.add(dots + 1);
    }
    lengths = [...found].sort((one, other) => other - one);
    lengthsOf.set(value, lengths);
  }
  return lengths;
}

/** The dots in a text. Counting stops at the number that is too many for a field. */
function dotsIn(text: string): number {
  let dots = 0;
  for (let at = text.indexOf('.'); at !== -1 && dots < CHECK_LIMITS.segments; at = text.indexOf('.', at + 1)) dots += 1;
  return dots;
}

/**
 * Equality of JSON values: `1` equals `1.0`; order matters in arrays, not in objects.
 * @param effort steps that it may use; without it, the caller must make sure that both sides are small
 * @throws EffortSpent
 */
export function jsonEquals(left: Json, right: Json, effort: Effort | null = null): boolean {
  if (effort !== null) spend(effort, 1 + (typeof left === 'string' ? left.length >> 10 : 0));
  if (left === right) return true;
  if (isJsonArray(left)) {
    return (
      isJsonArray(right) &&
      left.length === right.length &&
      left.every((item: Json, index) => {
        const other: Json | undefined = right[index];
        return other !== undefined && jsonEquals(item, other, effort);
      })
    );
  }
  if (!isJsonObject(left) || !isJsonObject(right)) return false;
  const names = Object.keys(left);
  if (effort !== null) spend(effort, names.length);
  if (names.length !== Object.keys(right).length) return false;
  for (const name of names) {
    const mine = left[name];
    const theirs = Object.hasOwn(right, name) ? right[name] : undefined;
    if (mine === undefined || theirs === undefined || !jsonEquals(mine, theirs, effort)) return false;
  }
  return true;
}
