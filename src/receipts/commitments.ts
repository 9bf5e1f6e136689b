import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';

/** The path of each committed field in the payload. */
const PLACES: Readonly<Record<string, readonly [string, ...string[]]>> = {
  target: ['action', 'target'],
  params: ['action', 'params'],
  idem: ['action', 'idem'],
  request: ['upstream', 'request'],
  response: ['upstream', 'response'],
  comment: ['effect', 'settled_by', 'comment'],
  evidence: ['effect', 'settled_by', 'evidence'],
};

/** The fields that a receipt commits to. */
export const COMMITTED_FIELDS: readonly string[] = Object.keys(PLACES);

/** The commitment to a field; `null` where the payload has none. */
export function commitmentIn(payload: JsonObject, field: string): string | null {
  const path = Object.hasOwn(PLACES, field) ? PLACES[field] : undefined;
  const found = path === undefined ? undefined : memberAt(payload, path);
  return typeof found === 'string' ? found : null;
}

/** A member of an object, by its path. */
export function memberAt(object: JsonObject, path: readonly string[]): Json | undefined {
  return path.reduce<Json | undefined>(
    (place, name) => (isJsonObject(place) && Object.hasOwn(place, name) ? place[name] : undefined),
    object,
  );
}
