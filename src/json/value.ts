/** Values that JSON can carry. Params, answers and states consist only of these. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** A JSON object. Reading a member by name gives `Json | undefined`. */
export interface JsonObject {
  readonly [name: string]: Json;
}

/** Whether a parsed JSON value is an object (not an array, not null). */
export function isJsonObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether a value is a list. `Array.isArray` alone does not narrow readonly lists. */
export function isJsonArray(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value);
}

/** A member of an object, or an element of a list. */
export type Step = string | number;

/** The value at a path, along own members and elements only; `undefined` where there is none. */
export function followSteps(start: Json | undefined, steps: readonly Step[]): Json | undefined {
  let value = start;
  for (const step of steps) {
    if (typeof step === 'number') value = isJsonArray(value) ? value[step] : undefined;
    else value = isJsonObject(value) && Object.hasOwn(value, step) ? value[step] : undefined;
    if (value === undefined) return undefined;
  }
  return value;
}

/** One name as a token of a JSON Pointer (RFC 6901). */
export function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}

/**
 * A JSON Pointer (RFC 6901): `/a/0/b`.
 * @param most characters that are shown of each name, because names may come from anybody
 */
export function pointerTo(names: readonly (string | number)[], most = Number.POSITIVE_INFINITY): string {
  return names.map((name) => `/${escapePointer(String(name).slice(0, most))}`).join('');
}
