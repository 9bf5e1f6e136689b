/** Values that JSON can carry. Params, answers and states are this and nothing else. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** A JSON object. Values read by an unknown name are `Json | undefined`. */
export interface JsonObject {
  readonly [name: string]: Json;
}

/** Whether a value that came out of a JSON parser is an object (and not an array or null). */
export function isJsonObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether a value is a list. `Array.isArray` alone does not narrow readonly lists. */
export function isJsonArray(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value);
}
