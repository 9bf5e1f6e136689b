import { RE2JS } from 're2js';
import type { Tree } from '../../../../src/config/expand.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../../../src/json/value.ts';
import { type ApiDocument, entries, list, object, refOf, resolve, resolveObject } from './document.ts';

/**
 * Turns the schemas of OpenAPI documents, which have their own dialects, into JSON Schema (2020-12, in the strict form
 * that the configuration takes). What it cannot translate is left open, so that a call that the document allows is
 * never refused.
 */
export interface SchemaWriter {
  whole(schema: Json): Tree;
  /** A schema of a value that arrives as text, in a path, a query or a header. */
  text(schema: Json): { [name: string]: Tree };
  /** The definitions that the schemas so far refer to, by name. */
  defs(): { [name: string]: Tree };
  /** Writes what is still missing, outer levels first, until the room is used up. @returns whether everything fitted */
  finish(): boolean;
}

/** How deep schemas may nest. Files of configuration may nest 64 deep. */
const MOST_LEVELS = 12;
const MOST_PATTERN = 256;
const MOST_PROGRAM = 300;
const MOST_NAME = 200;
const MOST_ENUM = 4_000;

type Written = { [name: string]: Tree };

/** @param room the most characters that the schemas may have */
export function schemaWriter(document: ApiDocument, room: number): SchemaWriter {
  const owed: { readonly source: Json; readonly level: number; readonly put: (written: Tree) => void }[] = [];
  const names = new Map<string, string>();
  const defs: Written = {};
  let left = room;
  let hadRoom = true;

  const owe = (source: Json, level: number, put: (written: Tree) => void): void => {
    if (level > MOST_LEVELS) {
      hadRoom = false;
      put({});
    } else owed.push({ source, level, put });
  };
  const nameOf = (ref: string): string => {
    const word = (ref.split('/').at(-1) ?? '').replace(/[^A-Za-z0-9]+/g, '_').slice(0, 60) || 'schema';
    let name = word;
    for (let count = 2; Object.hasOwn(defs, name); count += 1) name = `${word}_${count}`;
    return name;
  };
  const write = (source: Json, level: number): Tree => {
    const found = simplest(document, source);
    const ref = refOf(found);
    if (ref === null) return shallow(document, found, level, owe);
    const known = names.get(ref);
    if (known !== undefined) return { $ref: `#/$defs/${known}` };
    const target = resolve(document, found);
    if (target === null) return {};
    if (isSmall(target)) return shallow(document, target, level, owe);
    const name = nameOf(ref);
    names.set(ref, name);
    defs[name] = {};
    // A definition is in one place, whatever refers to it.
    owe(target, 1, (written) => {
      defs[name] = written;
    });
    return { $ref: `#/$defs/${name}` };
  };
  const finish = (): boolean => {
    for (let at = 0; at < owed.length; at += 1) {
      const one = owed[at];
      if (one === undefined) break;
      if (left <= 0) {
        hadRoom = false;
        one.put({});
        continue;
      }
      const written = write(one.source, one.level);
      left -= JSON.stringify(written).length;
      one.put(written);
    }
    owed.length = 0;
    return hadRoom;
  };
  return {
    whole: (schema) => {
      const written = write(schema, 1);
      left -= JSON.stringify(written).length;
      return written;
    },
    text: (schema) => {
      const written = textSchema(document, schema);
      left -= JSON.stringify(written).length;
      return written;
    },
    defs: () => defs,
    finish,
  };
}

/** In version 3.0, `allOf` with one schema is a way to put a description beside a reference. */
function simplest(document: ApiDocument, schema: Json): Json {
  let found = schema;
  for (let hops = 0; hops < 8; hops += 1) {
    const { allOf, ...rest } = object(found);
    const only = list(allOf);
    const hasOwnRules = Object.keys(rest).some((keyword) => KEPT.has(keyword) && keyword !== 'type');
    if (only.length !== 1 || hasOwnRules || refOf(found) !== null) return found;
    found = only[0] ?? {};
  }
  return resolve(document, found) ?? {};
}

/** Keywords that restrict values. */
const KEPT = new Set([
  'type',
  'enum',
  'const',
  'properties',
  'required',
  'additionalProperties',
  'items',
  'allOf',
  'anyOf',
  'oneOf',
  'nullable',
  'x-nullable',
  'minimum',
  'maximum',
  'pattern',
  'format',
]);

function isSmall(schema: Json): boolean {
  const inner = ['properties', 'items', 'allOf', 'anyOf', 'oneOf', 'additionalProperties', '$ref'];
  return isJsonObject(schema) && !inner.some((keyword) => schema[keyword] !== undefined);
}

/** One level of a schema. The levels below it are written later. */
function shallow(
  document: ApiDocument,
  source: Json,
  level: number,
  owe: (source: Json, level: number, put: (written: Tree) => void) => void,
): Tree {
  if (typeof source === 'boolean') return source;
  const schema = object(source);
  const written = scalars(schema);
  const { properties, items } = schema;
  if (isJsonObject(properties)) {
    const inner: Written = {};
    for (const [name, value] of Object.entries(properties)) {
      if (!isPropertyName(name)) continue;
      inner[name] = {};
      owe(value, level + 1, (made) => {
        inner[name] = made;
      });
    }
    written['properties'] = inner;
  }
  const required = requiredOf(document, schema);
  if (required.length > 0) {
    const inner = isTreeMap(written['properties']) ? written['properties'] : {};
    // In strict mode, each required name must also be declared here.
    for (const name of required) if (!Object.hasOwn(inner, name)) inner[name] = {};
    written['properties'] = inner;
    written['required'] = [...required];
  }
  const additional = schema['additionalProperties'];
  if (additional === false && schema['patternProperties'] === undefined) written['additionalProperties'] = false;
  else if (isJsonObject(additional) && Object.keys(additional).length > 0)
    owe(additional, level + 1, (made) => {
      written['additionalProperties'] = made;
    });
  if (isJsonObject(items) || typeof items === 'boolean')
    owe(items, level + 1, (made) => {
      written['items'] = made;
    });
  combine(document, schema, written, level, owe);
  return written;
}

/**
 * `oneOf` becomes `anyOf`, because alternatives that were left partly open may match at the same time. Closed parts of
 * `allOf` are opened, because they would refuse what the other parts declare.
 */
function combine(
  document: ApiDocument,
  schema: JsonObject,
  written: Written,
  level: number,
  owe: (source: Json, level: number, put: (written: Tree) => void) => void,
): void {
  const nullable = isNullable(schema);
  const all = list(schema['allOf']);
  const any = [...list(schema['anyOf']), ...list(schema['oneOf'])];
  const hasBoth = list(schema['anyOf']).length > 0 && list(schema['oneOf']).length > 0;
  if (all.length > 0) {
    const parts: Tree[] = all.map(() => ({}));
    for (const [index, part] of all.entries())
      owe(opened(document, part), level + 1, (made) => {
        parts[index] = made;
      });
    if (nullable && written['type'] === undefined) written['anyOf'] = [{ type: 'null' }, { allOf: parts }];
    else written['allOf'] = parts;
  } else if (any.length > 0 && !hasBoth) {
    const parts: Tree[] = any.map(() => ({}));
    for (const [index, part] of any.entries())
      owe(part, level + 1, (made) => {
        parts[index] = made;
      });
    if (nullable) parts.push({ type: 'null' });
    written['anyOf'] = parts;
  }
}

function opened(document: ApiDocument, part: Json): Json {
  const schema = resolveObject(document, part);
  if (schema['additionalProperties'] !== false) return part;
  const { additionalProperties: _closed, ...open } = schema;
  return open;
}

/** What a caller must send: a member that only answers have is not required. */
export function requiredOf(document: ApiDocument, schema: JsonObject): readonly string[] {
  const properties = object(schema['properties']);
  const names = list(schema['required']).filter((name) => typeof name === 'string');
  return [...new Set(names)].filter(
    (name) =>
      isPropertyName(name) &&
      (!Object.hasOwn(properties, name) || resolveObject(document, properties[name])['readOnly'] !== true),
  );
}

/** Names that can be keys in a file of configuration without misleading a reader. */
export function isPropertyName(name: string): boolean {
  return name !== '__proto__' && name.length <= MOST_NAME && !/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/u.test(name);
}

const TYPES = new Set(['string', 'integer', 'number', 'boolean', 'array', 'object', 'null']);
const TEXT_FORMATS = new Set(['date', 'date-time', 'email', 'hostname', 'ipv4', 'ipv6', 'uri', 'uuid']);
const COUNTS = ['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties'] as const;

/** The keywords that contain no schemas. */
function scalars(schema: JsonObject): Written {
  const written: Written = {};
  const types = typesOf(schema);
  const isText = types.length === 0 || types.includes('string');
  const isNumber = types.length === 0 || types.includes('integer') || types.includes('number');
  const nullable = isNullable(schema);
  if (types.length > 0) {
    const named = nullable && !types.includes('null') ? [...types, 'null'] : types;
    written['type'] = named.length === 1 ? (named[0] ?? '') : [...named];
  }
  const values = enumOf(schema, types);
  if (values !== null) written['enum'] = nullable && !values.includes(null) ? [...values, null] : [...values];
  for (const keyword of COUNTS) {
    const value = schema[keyword];
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) written[keyword] = value;
  }
  if (isNumber) ranges(schema, written);
  if (schema['uniqueItems'] === true) written['uniqueItems'] = true;
  const { format, pattern } = schema;
  if (isText && typeof format === 'string' && TEXT_FORMATS.has(format)) written['format'] = format;
  if (isText && typeof pattern === 'string' && isUsable(pattern)) written['pattern'] = pattern;
  return written;
}

function typesOf(schema: JsonObject): readonly string[] {
  const { type, format } = schema;
  // Used by Kubernetes.
  if (format === 'int-or-string') return ['integer', 'string'];
  if (type === 'file') return ['string'];
  const named = (isJsonArray(type) ? type : [type]).filter((one) => typeof one === 'string' && TYPES.has(one));
  return [...new Set(named.map(String))];
}

function isNullable(schema: JsonObject): boolean {
  return schema['nullable'] === true || schema['x-nullable'] === true;
}

/** The allowed values, as far as a file can hold them; `null` if any value is allowed. */
function enumOf(schema: JsonObject, types: readonly string[]): readonly Tree[] | null {
  const given = schema['const'] !== undefined ? [schema['const']] : list(schema['enum']);
  const known = given.filter(
    (value) => isHeld(value) && (types.length === 0 || types.some((type) => isOf(type, value))),
  );
  // If values have a type that the schema does not name, or there are too many, any value is allowed.
  if (known.length === 0 || known.length < given.filter((value) => value !== null).length) return null;
  return JSON.stringify(known).length > MOST_ENUM ? null : known.filter((value) => value === null || isScalar(value));
}

function isScalar(value: Json): value is string | number | boolean {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
}

function isHeld(value: Json): boolean {
  if (typeof value === 'number') return isNumberHeld(value);
  return value === null || typeof value === 'boolean' || (typeof value === 'string' && value.isWellFormed());
}

function isNumberHeld(value: number): boolean {
  return Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value));
}

function isOf(type: string, value: Json): boolean {
  switch (type) {
    case 'integer':
      return Number.isInteger(value);
    case 'null':
      return value === null;
    default:
      return typeof value === type;
  }
}

/** In version 3.0 `exclusiveMinimum` is a flag beside `minimum`; later it is the limit itself. */
function ranges(schema: JsonObject, written: Written): void {
  for (const [bound, exclusive] of [
    ['minimum', 'exclusiveMinimum'],
    ['maximum', 'exclusiveMaximum'],
  ] as const) {
    const value = schema[bound];
    const other = schema[exclusive];
    if (typeof value === 'number' && isNumberHeld(value)) written[other === true ? exclusive : bound] = value;
    if (typeof other === 'number' && isNumberHeld(other)) written[exclusive] = other;
  }
  const step = schema['multipleOf'];
  if (typeof step === 'number' && isNumberHeld(step) && step > 0) written['multipleOf'] = step;
}

/** Patterns must run in linear time. What RE2 does not know, or what is too large, is left open. */
function isUsable(pattern: string): boolean {
  if (pattern.length > MOST_PATTERN || pattern === '' || !pattern.isWellFormed()) return false;
  try {
    return RE2JS.compile(RE2JS.translateRegExp(pattern)).programSize() <= MOST_PROGRAM;
  } catch {
    return false;
  }
}

/**
 * A value in a path, a query or a header is a text. The gateway reads it as a number or a boolean only if the schema
 * names that type and no other.
 */
function textSchema(document: ApiDocument, source: Json): Written {
  const schema = object(resolve(document, simplest(document, source)) ?? undefined);
  const types = typesOf(schema).filter((type) => type !== 'null');
  const [type] = types;
  const { nullable: _one, 'x-nullable': _two, ...plain } = schema;
  if (
    type === undefined &&
    list(schema['enum']).length > 0 &&
    list(schema['enum']).every((one) => typeof one === 'string')
  )
    return scalars({ ...plain, type: 'string' });
  if (types.length !== 1 || type === undefined || !['string', 'integer', 'number', 'boolean'].includes(type))
    return { type: 'string' };
  return scalars({ ...plain, type });
}

/** The members of an object, however its schema is composed. */
export interface Members {
  readonly properties: ReadonlyMap<string, Json>;
  readonly required: readonly string[];
  /** For each alternative, what it requires. */
  readonly alternatives: readonly (readonly string[])[];
  /** Whether other members are forbidden. */
  readonly isClosed: boolean;
}

/** The members of a body that is an object; `null` if it cannot be one. */
export function membersOf(document: ApiDocument, source: Json, level = 0): Members | null {
  const found = resolve(document, source);
  if (found === null || typeof found === 'boolean')
    return { properties: new Map(), required: [], alternatives: [], isClosed: false };
  const schema = object(found);
  const types = typesOf(schema);
  if (types.length > 0 && !types.includes('object')) return null;
  const properties = new Map<string, Json>();
  for (const [name, value] of entries(schema['properties'])) properties.set(name, value);
  const required = new Set(requiredOf(document, schema));
  const isClosed = schema['additionalProperties'] === false && schema['patternProperties'] === undefined;
  if (level >= MOST_LEVELS) return { properties, required: [...required], alternatives: [], isClosed: false };
  const all = list(schema['allOf']).map((part) => membersOf(document, part, level + 1));
  if (all.includes(null)) return null;
  const any = [...list(schema['anyOf']), ...list(schema['oneOf'])];
  const objects = any.map((part) => membersOf(document, part, level + 1)).filter((part) => part !== null);
  if (any.length > 0 && objects.length === 0) return null;
  for (const part of all.filter((one) => one !== null)) {
    for (const [name, value] of part.properties) if (!properties.has(name)) properties.set(name, value);
    for (const name of part.required) required.add(name);
  }
  for (const part of objects)
    for (const [name, value] of part.properties) {
      const other = properties.get(name);
      if (other === undefined) properties.set(name, value);
      else if (JSON.stringify(other) !== JSON.stringify(value)) properties.set(name, either(other, value));
    }
  const nested = all.flatMap((part) => part?.alternatives ?? []);
  const own = objects.map((part) => part.required.filter((name) => !required.has(name)));
  return {
    properties,
    required: [...required],
    // An alternative that requires nothing lets everything pass. More than one set of alternatives cannot be expressed
    // here.
    alternatives: own.some((names) => names.length === 0) ? [] : own.length > 0 ? own : nested,
    isClosed: isClosed && all.length === 0 && objects.length === 0,
  };
}

/** The schema of a multipart field that is a file or a list of files; `null` for any other field. */
export function fileFieldSchema(document: ApiDocument, source: Json): Tree | null {
  const schema = resolveObject(document, source);
  if (isBinary(schema)) return { type: 'object' };
  const type = schema['type'];
  if (type === 'array' && isBinary(resolveObject(document, schema['items'] ?? {})))
    return { type: 'array', items: { type: 'object' } };
  const any = [...list(schema['anyOf']), ...list(schema['oneOf'])];
  // Left open: for a field that may be a file or a text, nothing can be said. Objects are written as JSON by some
  // clients, and by name by others.
  return any.some((one) => fileFieldSchema(document, one) !== null) || membersAt(schema) ? {} : null;
}

function membersAt(schema: JsonObject): boolean {
  return schema['type'] === 'object' || schema['properties'] !== undefined || schema['allOf'] !== undefined;
}

/** How the versions of OpenAPI mark a value as bytes. */
function isBinary(schema: JsonObject): boolean {
  const { type, format, contentMediaType, contentEncoding } = schema;
  if (type === 'file' || (type === 'string' && format === 'binary')) return true;
  return (type === 'string' || type === undefined) && contentMediaType !== undefined && contentEncoding === undefined;
}

function either(one: Json, other: Json): Json {
  const known = isJsonObject(one) && isJsonArray(one['anyOf']) && Object.keys(one).length === 1 ? one['anyOf'] : [one];
  return { anyOf: [...known, other] };
}

/** Whether a part of what is written has names. */
export function isTreeMap(value: Tree | undefined): value is Written {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
