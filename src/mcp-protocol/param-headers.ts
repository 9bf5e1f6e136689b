import { canonicalJson } from '../json/text.ts';
import { type Json, type JsonObject, isJsonObject } from '../json/value.ts';
import { decodeHeader, encodeHeader } from './mirror-headers.ts';

/* Arguments of a call that a header repeats, as the input schema of the tool says with `x-mcp-header`. */

export interface ParamHeader {
  /** In lower case, with its prefix. */
  readonly name: string;
  readonly path: readonly string[];
}

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** Levels of a schema that are searched. */
const MOST_LEVELS = 32;

const known = new WeakMap<JsonObject, readonly ParamHeader[]>();

/** The arguments that headers repeat, in an input schema. Each schema is searched once. */
export function paramHeadersIn(schema: Json | undefined): readonly ParamHeader[] {
  if (!isJsonObject(schema)) return [];
  let found = known.get(schema);
  if (found === undefined) {
    found = searched(schema, []);
    known.set(schema, found);
  }
  return found;
}

function searched(schema: Json | undefined, path: readonly string[]): readonly ParamHeader[] {
  if (!isJsonObject(schema) || path.length > MOST_LEVELS) return [];
  const header = schema['x-mcp-header'];
  const own =
    typeof header === 'string' && TOKEN.test(header) && path.length > 0
      ? [{ name: `mcp-param-${header.toLowerCase()}`, path }]
      : [];
  const properties = isJsonObject(schema['properties']) ? schema['properties'] : {};
  return [...own, ...Object.entries(properties).flatMap(([name, inner]) => searched(inner, [...path, name]))];
}

/**
 * Why a schema declares headers that cannot be sent: clients of 2026-07-28 leave out such a tool. `null`: it does not.
 */
export function paramHeaderFault(schema: Json | undefined): string | null {
  const names = new Set<string>();
  const check = (value: Json | undefined, level: number): string | null => {
    if (!isJsonObject(value) || level > MOST_LEVELS) return null;
    const { 'x-mcp-header': header, type, properties } = value;
    if (header !== undefined) {
      if (typeof header !== 'string' || !TOKEN.test(header)) return 'a name in x-mcp-header is none of a header';
      if (level === 0 || type === 'object' || type === 'array')
        return `${header} repeats no text, number or truth value`;
      if (names.has(header.toLowerCase())) return `${header} stands twice`;
      names.add(header.toLowerCase());
    }
    for (const inner of isJsonObject(properties) ? Object.values(properties) : []) {
      const fault = check(inner, level + 1);
      if (fault !== null) return fault;
    }
    return null;
  };
  return check(schema, 0);
}

/** The headers of a call: those of arguments that are there, and are a text, a number or a truth value. */
export function paramHeadersOf(declared: readonly ParamHeader[], given: Json | undefined): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const { name, path } of declared) {
    const value = valueAt(given, path);
    if (typeof value === 'string') headers[name] = encodeHeader(value);
    else if (typeof value === 'boolean' || typeof value === 'number') headers[name] = canonicalJson(value);
  }
  return headers;
}

/**
 * Compares the headers of a call with its arguments. What stands between a client and a server may go by the headers, so
 * one that says something else, that is missing, or that repeats an argument that is not there, is a fault.
 */
export function paramMismatch(
  declared: readonly ParamHeader[],
  given: JsonObject,
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
): {
  readonly name: string;
  /** `null` where it is missing. */
  readonly actual: string | null;
} | null {
  const expected = paramHeadersOf(declared, given);
  for (const { name, path } of declared) {
    const header = headers[name];
    const actual = header === undefined ? null : String(header).trim();
    const wanted = expected[name] ?? null;
    if (actual === wanted) continue;
    if (actual === null || wanted === null) return { name, actual };
    const decoded = decodeHeader(actual);
    const value = valueAt(given, path);
    const isSame =
      decoded !== null &&
      (typeof value === 'number' ? decoded !== '' && Number(decoded) === value : decoded === decodeHeader(wanted));
    if (!isSame) return { name, actual };
  }
  return null;
}

function valueAt(given: Json | undefined, path: readonly string[]): Json | undefined {
  let value = given;
  for (const name of path) value = isJsonObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
  return value;
}
