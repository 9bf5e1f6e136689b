import { percentDecoded } from '../../../../src/bytes/percent-decoded.ts';
import { isJsonObject, type Json, type JsonObject } from '../../../../src/json/value.ts';

/** An OpenAPI document that was read completely, with the other files that it refers to. */
export interface ApiDocument {
  readonly root: JsonObject;
  /** The URL where it was read, `file:` or `http(s):`. */
  readonly url: string;
  /** The documents that it refers to, by URL. */
  readonly others: ReadonlyMap<string, Json>;
}

/** After this many references in a row, the last one counts as leading nowhere. */
const MOST_HOPS = 32;

/** Follows a `$ref` to its target. `null` if it leads nowhere or in a circle. */
export function resolve(document: ApiDocument, value: Json | undefined): Json | null {
  let found = value ?? null;
  for (let hops = 0; hops < MOST_HOPS; hops += 1) {
    const ref = refOf(found);
    if (ref === null) return found;
    found = lookUp(document, ref) ?? null;
    if (found === null) return null;
  }
  return null;
}

/** Like {@link resolve}, for objects; anything else becomes an empty object. */
export function resolveObject(document: ApiDocument, value: Json | undefined): JsonObject {
  return object(resolve(document, value) ?? undefined);
}

/** The reference in an object. A property may also be named `$ref`; then its value is not a text. */
export function refOf(value: Json | undefined): string | null {
  const ref = isJsonObject(value) ? value['$ref'] : undefined;
  return typeof ref === 'string' ? ref : null;
}

function lookUp(document: ApiDocument, ref: string): Json | undefined {
  const [url = '', pointer = ''] = ref.split('#', 2);
  let node: Json | undefined = url === '' ? document.root : document.others.get(url);
  if (pointer !== '' && !pointer.startsWith('/')) return undefined;
  for (const step of pointer.split('/').slice(1)) {
    // It should be percent-encoded in a URL, but some documents do not encode it.
    const name = (percentDecoded(step) ?? step).replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(node)) node = /^\d+$/.test(name) ? node[Number(name)] : undefined;
    else node = isJsonObject(node) && Object.hasOwn(node, name) ? node[name] : undefined;
  }
  return node;
}

/** An object; an empty one if the value is anything else. */
export function object(value: Json | undefined): JsonObject {
  return isJsonObject(value) ? value : {};
}

/** Members of an object; none if the value is anything else. */
export function entries(value: Json | undefined): readonly (readonly [string, Json])[] {
  return Object.entries(object(value));
}

/** Elements of a list; none if the value is anything else. */
export function list(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? value : [];
}

/** A text; `null` if the value is anything else. */
export function textOf(value: Json | undefined): string | null {
  return typeof value === 'string' ? value : null;
}
