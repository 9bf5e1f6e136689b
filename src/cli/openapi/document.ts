import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';

/** An OpenAPI document, read whole, with what it refers to in other files. */
export interface ApiDocument {
  readonly root: JsonObject;
  /** `file:` or `http(s):`, where it was read. */
  readonly url: string;
  /** Documents that it refers to, by URL. */
  readonly others: ReadonlyMap<string, Json>;
}

/** References that are followed one after the other before it is said that they lead nowhere. */
const MOST_HOPS = 32;

/** Follows a `$ref` to what it stands for. `null` where it leads nowhere, or in a circle. */
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

/** The same where an object is wanted; anything else is an empty one. */
export function resolveObject(document: ApiDocument, value: Json | undefined): JsonObject {
  return object(resolve(document, value) ?? undefined);
}

/** The reference that an object is. A property may be called `$ref` as well: then its value is no text. */
export function refOf(value: Json | undefined): string | null {
  const ref = isJsonObject(value) ? value['$ref'] : undefined;
  return typeof ref === 'string' ? ref : null;
}

function lookUp(document: ApiDocument, ref: string): Json | undefined {
  const [url = '', pointer = ''] = ref.split('#', 2);
  let node: Json | undefined = url === '' ? document.root : document.others.get(url);
  if (pointer !== '' && !pointer.startsWith('/')) return undefined;
  for (const step of pointer.split('/').slice(1)) {
    const name = decoded(step).replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(node)) node = /^\d+$/.test(name) ? node[Number(name)] : undefined;
    else node = isJsonObject(node) && Object.hasOwn(node, name) ? node[name] : undefined;
  }
  return node;
}

/** A step of a pointer is percent-encoded in a URL; some documents do without. */
function decoded(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

/** An object, or an empty one where something else stands. */
export function object(value: Json | undefined): JsonObject {
  return isJsonObject(value) ? value : {};
}

/** Members of an object; none where something else stands. */
export function entries(value: Json | undefined): readonly (readonly [string, Json])[] {
  return Object.entries(object(value));
}

/** Elements of a list; none where something else stands. */
export function list(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? value : [];
}

/** A text, or `null` where something else stands. */
export function textOf(value: Json | undefined): string | null {
  return typeof value === 'string' ? value : null;
}
