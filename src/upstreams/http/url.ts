import { percentDecoded } from '../../bytes/percent-decoded.ts';
import { MOST_FAULTS } from '../../diagnostics/stop-at.ts';
import type { RequestFault } from '../../effects/model/run-request.ts';
import { type FormLists, type QueryStyle, rootOfName } from '../../effects/model/tool.ts';
import { canonicalJson } from '../../json/text.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject, pointerTo } from '../../json/value.ts';
import { memberSchema } from '../../json/schema-walk.ts';
import type { JsonLimits } from '../../json/strict.ts';
import {
  CLASHES,
  collectFields,
  type Fields,
  fieldsOf,
  foldedName,
  formMisfit,
  MOST_SHOWN,
  overrideFault,
  writeForm,
} from './form.ts';

/** A path that every party reads in the same way, split into its decoded segments. */
export type PlainPath =
  | { readonly ok: true; readonly segments: readonly string[] }
  | { readonly ok: false; readonly message: string };

/** The characters of RFC 3986 `pchar` and `/`: a URL parser leaves them as they are. */
const PLAIN = /^\/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]*$/;
const DOTS = /^\.{1,2}(?:;.*)?$/;
// eslint-disable-next-line no-control-regex -- control characters are what it looks for
const CONTROL = /[\u0000-\u001f\u007f]/;

/**
 * Checks a path (without query) before anything is matched against it. Refuses whatever some server along the way might
 * read differently: dot segments, encoded dots, slashes and backslashes, empty segments, `;` (some servers cut a
 * segment there), NUL and other control characters, stray `%`, bytes that are not UTF-8, characters outside RFC 3986.
 * Nothing is rewritten: a path that passes is sent unchanged.
 * @param slashes whether a segment may have encoded slashes, because a param of some pattern may hold them
 */
export function readPath(path: string, slashes = false): PlainPath {
  if (!PLAIN.test(path)) return refuse('the path has a character that a path may not have; percent-encode it');
  const segments = path.slice(1).split('/');
  const decoded: string[] = [];
  for (let index = 0; index < segments.length; index += 1) {
    const segment = segments[index] ?? '';
    if (segment === '' && index < segments.length - 1) return refuse('the path has an empty segment ("//")');
    if (segment.startsWith('.') && DOTS.test(segment)) return refuse('the path has a "." or ".." segment');
    if (segment.includes(';')) return refuse('the path has a ";", which some servers cut a segment off at');
    if (!segment.includes('%')) {
      decoded.push(segment);
      continue;
    }
    if ((slashes ? /%(?:2e|5c|00)/i : /%(?:2e|2f|5c|00)/i).test(segment))
      return refuse('the path has an encoded dot, slash, backslash or NUL');
    const text = percentDecoded(segment);
    if (text === null) return refuse('the path has a percent sign that does not encode UTF-8');
    if (text.split('/').some((part) => DOTS.test(part))) return refuse('the path has a "." or ".." segment');
    if (CONTROL.test(text)) return refuse('the path has a control character');
    decoded.push(text);
  }
  return { ok: true, segments: decoded };
}

/** Characters that nobody sees, and that some servers and file systems leave out. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** A text without the characters that nobody sees. */
export function withoutInvisible(text: string): string {
  return text.replace(INVISIBLE, '');
}

/**
 * Whether all servers read a decoded segment in the same way. Some cut dots or white space off its end (Windows does so
 * for files), cut it at a ";", leave out characters that nobody sees, or decode it a second time. Such a segment may be
 * the param of a declared path. Without a rule for the path it is refused.
 */
export function isReadAlike(segment: string): boolean {
  const text = segment.normalize('NFKC');
  return !/^\s|[\s.]$|;|%[0-9a-f]{2}/i.test(text) && withoutInvisible(segment) === segment;
}

/** Nothing in such a path has a second spelling. */
const ONE_SPELLING = /^[A-Za-z0-9\-._~/]*$/;

/**
 * Whether a path is spelled as a tool's request would be: each param as `encodeURIComponent` writes it. Escapes of
 * letters, digits and `-._~` mean those for every server (RFC 3986, 6.2.2.2); a delimiter and its escape need not: to
 * some, `a+b` is `a b`, and `name:cancel` is a method of `name`.
 * @param path a path that {@link readPath} takes, and that matches
 */
export function isUsualSpelling(path: string, pattern: string): boolean {
  if (ONE_SPELLING.test(path)) return true;
  const parts = readPattern(pattern);
  return path
    .slice(1)
    .split('/')
    .every((segment, index) => {
      const part = parts?.[Math.min(index, parts.length - 1)];
      const usual = part?.kind === 'literal' ? part.text : written(decodeURIComponent(segment), part?.holds);
      return withPlainEscapes(segment) === withPlainEscapes(usual);
    });
}

/** With upper-case escapes, and without those of characters that need none. */
function withPlainEscapes(segment: string): string {
  return segment.replace(/%[0-9A-Fa-f]{2}/g, (escape) => {
    const character = String.fromCharCode(Number.parseInt(escape.slice(1), 16));
    return /[A-Za-z0-9\-._~]/.test(character) ? character : escape.toUpperCase();
  });
}

/** Slashes in a param: encoded ones (`encoded_slashes`), or any, because it is the rest of the path (`*path`, `{+path}`). */
export type Slashes = 'encoded' | 'any' | undefined;

/** One segment of a pattern: a literal, or a param that takes the whole segment, or all that are left. */
export type PatternSegment =
  | { readonly kind: 'literal'; readonly text: string }
  | { readonly kind: 'param'; readonly name: string; readonly holds?: Slashes };

/**
 * Splits a pattern into segments. Both spellings are read: `/v1/files/:id/*path` (routes) and `/v1/files/{id}/{+path}`
 * (tools).
 * @param encoded params that may hold encoded slashes
 * @returns `null` if a placeholder does not fill its segment, or one for the rest of the path is not the last
 */
export function readPattern(pattern: string, encoded: readonly string[] = []): readonly PatternSegment[] | null {
  const segments: PatternSegment[] = [];
  const texts = pattern.slice(1).split('/');
  for (const [index, text] of texts.entries()) {
    const rest = /^\{\+([^{}]+)\}$/.exec(text)?.[1] ?? /^\*([A-Za-z_][A-Za-z0-9_]*)$/.exec(text)?.[1];
    const name = rest ?? /^\{([^{}]+)\}$/.exec(text)?.[1] ?? /^:([A-Za-z_][A-Za-z0-9_]*)$/.exec(text)?.[1];
    const holds = rest === undefined ? 'encoded' : 'any';
    if (rest !== undefined && index < texts.length - 1) return null;
    if (name !== undefined && (rest !== undefined || encoded.includes(name)))
      segments.push({ kind: 'param', name, holds });
    else if (name !== undefined) segments.push({ kind: 'param', name });
    else if (/[{}]/.test(text)) return null;
    else segments.push({ kind: 'literal', text });
  }
  return segments;
}

export function holdsSlashes(pattern: readonly PatternSegment[]): boolean {
  return pattern.some((part) => part.kind === 'param' && part.holds !== undefined);
}

/** The params of a path that matches a pattern, as texts; `null` if it does not match. A param is never empty. */
export function matchPattern(
  pattern: readonly PatternSegment[],
  segments: readonly string[],
): Record<string, string> | null {
  const last = pattern.at(-1);
  const takesRest = last?.kind === 'param' && last.holds === 'any';
  if (takesRest ? segments.length < pattern.length : segments.length !== pattern.length) return null;
  const params: Record<string, string> = {};
  for (let index = 0; index < pattern.length; index += 1) {
    const part = pattern[index];
    const text = takesRest && part === last ? segments.slice(index).join('/') : segments[index];
    if (part === undefined || text === undefined) return null;
    if (part.kind === 'literal') {
      if (part.text !== text) return null;
    } else if (text === '' || (part.holds === undefined && text.includes('/'))) return null;
    else params[part.name] = text;
  }
  return params;
}

/**
 * Whether a path fits a pattern for a server that decodes slashes before it looks at segments: a param that may hold them
 * takes one segment or several. Each segment of both is compared as it is given.
 */
export function fitsDecoded(pattern: readonly PatternSegment[], segments: readonly string[]): boolean {
  let [part, at, wide, taken] = [0, 0, -1, 0];
  while (at < segments.length) {
    const one = pattern[part];
    if (one !== undefined && (one.kind === 'param' || one.text === segments[at])) {
      if (one.kind === 'param' && one.holds !== undefined) [wide, taken] = [part, at];
      part += 1;
      at += 1;
    } else if (wide === -1) return false;
    else {
      // The last one that may hold slashes takes a segment more.
      taken += 1;
      part = wide + 1;
      at = taken + 1;
    }
  }
  return part === pattern.length;
}

/** A param as a tool's request has it. */
export function written(text: string, holds: Slashes): string {
  return holds === 'any' ? text.split('/').map(encodeURIComponent).join('/') : encodeURIComponent(text);
}

function refuse(message: string): PlainPath {
  return { ok: false, message };
}

export interface QueryPlan {
  /** In the order in which they are sent. */
  readonly names: readonly string[];
  /** Params that may be lists or objects. All others are single values, and their names are taken as they are. */
  readonly styles: ReadonlyMap<string, QueryStyle>;
  /** The param that holds what has no name; `null`: that is refused. */
  readonly rest: string | null;
  readonly lists: FormLists;
  /** Folded names, up to the first bracket, of all params that have a place: nothing of the rest may be called so. */
  readonly taken: ReadonlySet<string>;
}

/** Names and values of a query, decoded, in their order. */
export type QueryPairs = readonly (readonly [name: string, value: string])[];

/** The params of a query, or what is wrong with it. */
export type CollectedQuery =
  | { readonly ok: true; readonly params: Readonly<Record<string, Json>> }
  | { readonly ok: false; readonly faults: readonly RequestFault[] };

interface ReadOptions {
  readonly schema: JsonObject | null;
  readonly limits: JsonLimits;
}

/** The most characters that a param with parts takes in the query. */
const MAX_WRITTEN = 8_192;

const SEPARATORS: Readonly<Record<Exclude<QueryStyle, FormLists>, { readonly text: string; readonly sent: string }>> = {
  comma: { text: ',', sent: ',' },
  space: { text: ' ', sent: '%20' },
  pipe: { text: '|', sent: '%7C' },
};

/** What is said of a name that stands more than once and is no list. */
export const REPEATED = 'stands more than once. If it is a list, say type: array in the params_schema of the tool';
/** Keys of callers stand there. */
const KEY_NAME = 'api_key';

/** Whether a query is more than single values with names that are known. */
export function isNested({ styles, rest }: QueryPlan): boolean {
  return styles.size > 0 || rest !== null;
}

/**
 * Reads the query of a tool with {@link isNested} params, as strictly as a form. What has neither a name nor a place in
 * the rest is a param of its own, which the check of params refuses.
 * @param flat the value of a param that is a single value
 */
export function collectQuery(
  plan: QueryPlan,
  pairs: QueryPairs,
  flat: (name: string, text: string) => Json,
  options: ReadOptions,
): CollectedQuery {
  const params: Record<string, Json> = {};
  const faults: RequestFault[] = [];
  const groups = new Map<string, Fields>();
  const spelled = new Map<string, string>();
  const joined = new Set<string>();
  const rest: (readonly [string, string])[] = [];
  const restFields = plan.rest === null ? null : fieldsOfRest(plan, plan.rest, options);
  const refuse = (path: string, message: string): void => {
    if (faults.length < MOST_FAULTS) faults.push({ path: `/query${path}`, message });
  };
  for (const [index, [name, text]] of pairs.entries()) {
    const root = rootOfName(name);
    const style = plan.styles.get(root);
    const isFlat = style === undefined && (plan.names.includes(name) || restFields === null);
    const own = isFlat ? name : root;
    const before = spelled.get(foldedName(own));
    if (before !== undefined && before !== own) {
      refuse(pathOf(own), CLASHES);
      continue;
    }
    spelled.set(foldedName(own), own);
    if (isFlat) {
      if (before === undefined) params[name] = flat(name, text);
      else refuse(pathOf(name), REPEATED);
    } else if (style === undefined) {
      const message = restNameFault(plan, name);
      const fault = message === null ? restFields?.put(name, text, index) : { path: pathOf(name), message };
      if (fault) refuse(fault.path, fault.message);
      else rest.push([name, text]);
    } else if (isJoined(style)) {
      if (joined.has(root) || name !== root) refuse(pathOf(root), `is written once, as ${exampleOf(root, style)}`);
      joined.add(root);
      groups.set(root, joinedFields(root, text.split(SEPARATORS[style].text), options));
    } else {
      const known = groups.get(root);
      const fields = known ?? collectFields({ ...options, lists: style, repeatedBy: `query_lists: repeat` });
      if (known === undefined) groups.set(root, fields);
      const fault = fields.put(name, text, index);
      if (fault !== null) refuse(fault.path, fault.message);
    }
  }
  for (const fields of groups.values()) {
    const read = fields.members();
    if (read.ok) Object.assign(params, read.members);
    else refuse(read.path, read.message);
  }
  if (plan.rest !== null && restFields !== null && rest.length > 0) {
    const read = restFields.members();
    if (!read.ok) refuse(read.path, read.message);
    else {
      const odd = oddlyWritten(rest, read.members, plan.lists);
      if (odd === null) params[plan.rest] = read.members;
      else
        refuse(
          pathOf(odd),
          `is a list that is not written as ${exampleOf(rootOfName(odd), plan.lists)}. Add query_lists: indices, brackets or repeat to the request of the tool, or ${rootOfName(odd).slice(0, MOST_SHOWN)} to its query`,
        );
    }
  }
  return faults.length === 0 ? { ok: true, params } : { ok: false, faults };
}

function fieldsOfRest(plan: QueryPlan, rest: string, { schema, limits }: ReadOptions): Fields {
  const at = memberSchema({ schema, root: schema }, rest);
  return collectFields({ lists: plan.lists, ...at, limits, repeatedBy: 'query_lists: repeat' });
}

function joinedFields(name: string, texts: readonly string[], options: ReadOptions): Fields {
  const fields = collectFields({ ...options, lists: 'brackets' });
  for (const text of texts) fields.put(`${name}[]`, text);
  return fields;
}

/** Why nothing of the rest may have a name; `null` if it may. */
function restNameFault({ taken }: QueryPlan, name: string): string | null {
  const folded = foldedName(rootOfName(name));
  if (folded === KEY_NAME) return 'is where callers carry their key';
  const fault = overrideFault(name, 'query');
  return fault ?? (taken.has(folded) ? 'is what some servers take for a param that the tool declares' : null);
}

/** The first name that is written otherwise than what was read would be; `null` if there is none. */
function oddlyWritten(given: QueryPairs, members: JsonObject, lists: FormLists): string | null {
  const left = new Map<string, number>();
  for (const [name] of fieldsOf(members, lists, () => false)) left.set(name, (left.get(name) ?? 0) + 1);
  for (const [name] of given) {
    const count = left.get(name) ?? 0;
    if (count === 0) return name;
    left.set(name, count - 1);
  }
  return null;
}

function isJoined(style: QueryStyle): style is keyof typeof SEPARATORS {
  return Object.hasOwn(SEPARATORS, style);
}

function exampleOf(name: string, style: QueryStyle): string {
  const shown = name.slice(0, MOST_SHOWN);
  if (isJoined(style)) return `${shown}=…${SEPARATORS[style].sent}…`;
  const [first, second] = { indices: ['[0]', '[1]'], brackets: ['[]', '[]'], repeat: ['', ''] }[style];
  return `${shown}${first}=…&${shown}${second}=…`;
}

/** Writes params as a query, without `?`. Always the same spelling is sent, whichever door the call came through. */
export function writeQuery(plan: QueryPlan, params: JsonObject): string {
  const written: string[] = [];
  for (const name of plan.names) {
    const value = Object.hasOwn(params, name) ? params[name] : undefined;
    if (value !== undefined) written.push(writeParam(name, value, plan.styles.get(name) ?? null));
  }
  const rest = plan.rest !== null && Object.hasOwn(params, plan.rest) ? params[plan.rest] : undefined;
  if (rest !== undefined && isJsonObject(rest)) written.push(writeForm(rest, plan.lists));
  return written.filter((text) => text !== '').join('&');
}

function writeParam(name: string, value: Json, style: QueryStyle | null): string {
  if (style === null) {
    if (typeof value === 'object') throw new Error(`the param ${name} is no single value`);
    return `${encodeURIComponent(name)}=${encodeURIComponent(String(value))}`;
  }
  if (!isJoined(style)) return writeForm({ [name]: value }, style);
  if (!isJsonArray(value)) throw new Error(`the param ${name} is no list`);
  const { sent } = SEPARATORS[style];
  const items = value.map((item) => encodeURIComponent(typeof item === 'object' ? '' : String(item)));
  return `${encodeURIComponent(name)}=${items.join(sent)}`;
}

const UNLIMITED: JsonLimits = { depth: Number.POSITIVE_INFINITY, values: Number.POSITIVE_INFINITY };

/** Why a param cannot be written in the query and be read back unchanged; `null` if it can. */
export function queryMisfit(name: string, value: Json, style: QueryStyle, schema: JsonObject | null): string | null {
  const into = 'goes into the query';
  if (isJoined(style)) {
    if (!isJsonArray(value) || value.length === 0) return `${into}: it must be a list that is not empty`;
    const { text } = SEPARATORS[style];
    if (value.some((item) => typeof item === 'object' || String(item).includes(text)))
      return `${into}: its elements are single values without "${text}", which stands between them`;
  } else {
    const misfit = formMisfit(name, value, { lists: style, schema, into: 'the query' });
    if (misfit !== null) return misfit;
  }
  if (writeParam(name, value, style).length > MAX_WRITTEN)
    return `${into}: it must not take more than ${MAX_WRITTEN} characters there`;
  if (isJoined(style)) return null;
  const fields = collectFields({ lists: style, schema, limits: UNLIMITED });
  return readBack(fields, { [name]: value }, style, into);
}

/**
 * Why the param that holds the rest of the query cannot be written and be read back unchanged; `null` if it can.
 * @param params all params of the call. Servers that put query and body together would take one for the other
 */
export function restMisfit(plan: QueryPlan, value: Json, params: JsonObject, schema: JsonObject | null): string | null {
  const into = 'goes into the query';
  if (!isJsonObject(value) || plan.rest === null) return `${into}: it must be an object`;
  const names = Object.keys(value);
  if (names.length === 0) return `${into}: it has no empty object; leave it out`;
  const at = memberSchema({ schema, root: schema }, plan.rest);
  const declared = schema?.['properties'];
  const others = new Set(
    [...Object.keys(params), ...Object.keys(isJsonObject(declared) ? declared : {})].map(foldedName),
  );
  for (const name of names) {
    const fault =
      restNameFault(plan, name) ??
      (others.has(foldedName(name)) && name !== plan.rest ? 'is the name of another param too' : null);
    if (fault !== null) return `${into}: ${name.slice(0, MOST_SHOWN)} ${fault}`;
    const misfit = formMisfit(name, value[name] ?? null, { lists: plan.lists, ...at, into: 'the query' });
    if (misfit !== null) return misfit;
  }
  if (writeForm(value, plan.lists).length > MAX_WRITTEN)
    return `${into}: it must not take more than ${MAX_WRITTEN} characters there`;
  return readBack(fieldsOfRest(plan, plan.rest, { schema, limits: UNLIMITED }), value, plan.lists, into);
}

function readBack(fields: Fields, members: JsonObject, lists: FormLists, into: string): string | null {
  for (const [name, text] of fieldsOf(members, lists, () => false)) {
    const fault = fields.put(name, typeof text === 'string' ? text : '');
    if (fault !== null) return `${into}: ${fault.path.slice(0, MOST_SHOWN)} ${fault.message}`;
  }
  const read = fields.members();
  if (read.ok && canonicalJson(texts(read.members)) === canonicalJson(texts(members))) return null;
  return `${into}: written there, a list of one would be read as a single value. Give it type: array in the params_schema, or query_lists: indices or brackets`;
}

/** A value with texts for all single values, as the query has them. */
function texts(value: Json): Json {
  if (isJsonArray(value)) return value.map(texts);
  if (!isJsonObject(value)) return String(value);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, texts(member)]));
}

function pathOf(name: string): string {
  return pointerTo([name], MOST_SHOWN);
}
