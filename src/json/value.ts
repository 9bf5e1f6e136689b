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
