import { SALTED_FIELDS, type SaltedField } from '../effects/ports.ts';
import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';

/** The path of each committed field in the payload. */
const PLACES: Readonly<Record<SaltedField, readonly [string, ...string[]]>> = {
  target: ['action', 'target'],
  params: ['action', 'params'],
  idem: ['action', 'idem'],
  request: ['upstream', 'request'],
  response: ['upstream', 'response'],
  comment: ['effect', 'settled_by', 'comment'],
  evidence: ['effect', 'settled_by', 'evidence'],
};

/** The commitment to a field; `null` where the payload has none. */
export function commitmentIn(payload: JsonObject, field: string): string | null {
  const salted = SALTED_FIELDS.find((one) => one === field);
  const found = salted === undefined ? undefined : memberAt(payload, PLACES[salted]);
  return typeof found === 'string' ? found : null;
}

/** A member of an object, by its path. */
export function memberAt(object: JsonObject, path: readonly string[]): Json | undefined {
  return path.reduce<Json | undefined>(
    (place, name) => (isJsonObject(place) && Object.hasOwn(place, name) ? place[name] : undefined),
    object,
  );
}
