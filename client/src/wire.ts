import type { Json, JsonObject } from './json.ts';

/** Fields whose content belongs to the caller or the upstream: the names in it stay unchanged. */
const OF_CALLS = ['params', 'asked_params', 'editable', 'varies', 'metadata'] as const;
const FOREIGN = new Set<string>([...OF_CALLS, 'result', 'receipt', 'data', 'assumed', 'current', 'links']);

/** What somebody settled an outcome by is theirs; the evidence of an effect is the gateway's. */
const isForeign = (name: string, of: string): boolean =>
  FOREIGN.has(name) || (name === 'evidence' && of === 'settled_by');

/** Converts the names of an answer from snake_case to camelCase, except in foreign content. @param of the member it is */
export function camel(value: Json, of = ''): Json {
  if (Array.isArray(value)) return value.map((item) => camel(item, of));
  if (typeof value !== 'object' || value === null) return value;
  const out: Record<string, Json> = {};
  for (const [name, item] of Object.entries(value))
    out[name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())] = isForeign(name, of)
      ? item
      : camel(item, name);
  return out;
}

/** Converts the names of one flat object to snake_case; undefined values are left out. */
export function snake(value: object): Record<string, Json> {
  const out: Record<string, Json> = {};
  for (const [name, item] of Object.entries(value))
    if (item !== undefined) out[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = item;
  return out;
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
