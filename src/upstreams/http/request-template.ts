import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { isFile } from '../../effects/model/files.ts';
import {
  type BodyType,
  type FormLists,
  type QueryStyle,
  type RequestTemplate,
  rootOfName,
} from '../../effects/model/tool.ts';
import type { RequestBody, ProxiedRequest } from '../../effects/upstream.ts';
import { foldedName, writeForm } from './form.ts';
import { writeMultipart, writeOpaque } from './multipart-body.ts';
import {
  isReadAlike,
  matchPattern,
  type PatternSegment,
  readPath,
  readPattern,
  type Slashes,
  written,
} from './path.ts';
import { type QueryPlan, writeQuery } from './query.ts';

/** Where a param goes. Each param goes to exactly one place. */
export type Place =
  | { readonly in: 'path'; readonly holds: Slashes }
  /** `style`: for lists and objects; `null` for a single value, `rest` for the param that holds what has no name. */
  | { readonly in: 'query'; readonly style: QueryStyle | 'rest' | null }
  | { readonly in: 'header'; readonly header: string }
  | { readonly in: 'body' };

/** A request template, split into its parts once. */
export interface RequestPlan {
  readonly method: string;
  readonly path: readonly PatternSegment[];
  readonly query: QueryPlan;
  /** Param name and header name. */
  readonly headers: readonly (readonly [string, string])[];
  readonly body: readonly string[] | '*';
  readonly bodyAs: string | null;
  readonly bodyType: BodyType;
  readonly formLists: FormLists;
  readonly places: ReadonlyMap<string, Place>;
}

/** A request as it is sent: everything but credentials and transport. */
export type RenderedRequest = Pick<ProxiedRequest, 'method' | 'pathAndQuery' | 'headers' | 'body'>;

/** The most characters of a param in a path, a query or a header: no server takes more. */
const MAX_PLACED = 4_096;

const PLAIN_WORD = /^[A-Za-z0-9_-]+$/;

const plans = new WeakMap<RequestTemplate, RequestPlan>();

/**
 * The plan of a template. Templates are frozen parts of the configuration, so each gets its plan only once.
 * @throws Error on a template that the configuration should have refused
 */
export function planOf(template: RequestTemplate): RequestPlan {
  let plan = plans.get(template);
  if (plan === undefined) {
    plan = makePlan(template);
    plans.set(template, plan);
  }
  return plan;
}

function makePlan(template: RequestTemplate): RequestPlan {
  const path = readPattern(template.path, template.encodedSlashes);
  if (path === null) throw new Error(`a placeholder of the path ${template.path} does not fill its segment`);
  const places = new Map<string, Place>();
  const put = (name: string, place: Place): void => {
    if (places.has(name)) throw new Error(`the param ${name} has two places in the request ${template.path}`);
    places.set(name, place);
  };
  for (const segment of path) if (segment.kind === 'param') put(segment.name, { in: 'path', holds: segment.holds });
  const { queryStyles = {}, queryRest: rest = null, queryLists = 'repeat' } = template;
  const styles = new Map(Object.entries(queryStyles));
  for (const name of template.query) put(name, { in: 'query', style: styles.get(name) ?? null });
  const headers = Object.entries(template.headers);
  for (const [name, header] of headers) put(name, { in: 'header', header });
  if (template.body !== '*') for (const name of template.body) put(name, { in: 'body' });
  const { method, body, bodyAs = null, bodyType = 'json', formLists = 'indices' } = template;
  if (bodyAs !== null) put(bodyAs, { in: 'body' });
  const taken = new Set([...places.keys()].map((name) => foldedName(rootOfName(name))));
  if (rest !== null) put(rest, { in: 'query', style: 'rest' });
  const query: QueryPlan = { names: template.query, styles, rest, lists: queryLists, taken };
  return { method, path, query, headers, body, bodyAs, bodyType, formLists, places };
}

/** Whether the body of a request may contain files. Such a body is read as it arrives and written anew. */
export function takesFiles({ bodyType }: Pick<RequestPlan, 'bodyType'>): boolean {
  return bodyType === 'multipart' || bodyType === 'opaque';
}

/** Where a param goes; `null` if the request does not use it. */
export function placeOf(plan: RequestPlan, name: string): Place | null {
  return plan.places.get(name) ?? (plan.body === '*' ? { in: 'body' } : null);
}

/** Why a param does not fit its place; `null` if it fits. */
export function misfit(place: Place, value: Json): string | null {
  if (place.in !== 'body' && typeof value === 'string' && value.length > MAX_PLACED)
    return `goes into the ${place.in}: it must not have more than ${MAX_PLACED} characters`;
  switch (place.in) {
    case 'body':
      return null;
    case 'path': {
      const text = isScalar(value) ? String(value) : '';
      if (text === '' || typeof value === 'boolean' || (typeof value === 'number' && !Number.isInteger(value))) {
        return 'goes into the path: it must be a string that is not empty, or an integer';
      }
      // Most ids are plain words, which every server reads in the same way.
      if (PLAIN_WORD.test(text)) return null;
      if (place.holds !== undefined)
        return text
          .split('/')
          .every((part) => part !== '' && isReadAlike(part) && readPath(`/${encodeURIComponent(part)}`).ok)
          ? null
          : 'goes into the path: between its slashes there must be names that all servers read alike, none of them empty, "." or ".."';
      const read = readPath(`/${encodeURIComponent(text)}`);
      if (!read.ok || read.segments.length !== 1 || read.segments[0] !== text) {
        return 'goes into the path: it must not be "." or "..", nor have slashes, backslashes or control characters';
      }
      return null;
    }
    case 'query':
      // What may have parts is looked at with its schema.
      if (place.style !== null) return null;
      return isScalar(value) ? null : 'goes into the query: it must be a string, a number or a boolean';
    case 'header':
      if (isScalar(value) && /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(String(value))) return null;
      return `goes into the header ${place.header}: it must be visible ASCII without spaces around it`;
  }
}

/**
 * Renders the request for some params.
 * @throws Error if a path param is missing or does not fit (`misfit` tells beforehand), or if the rendered path no
 *   longer matches the template
 */
export function renderRequest(plan: RequestPlan, params: JsonObject): RenderedRequest {
  const path = renderPath(plan, params);
  const query = writeQuery(plan.query, params);
  const headers: Record<string, string> = {};
  for (const [name, header] of plan.headers) {
    const value = own(params, name);
    if (value !== undefined) headers[header] = textOf(value);
  }
  const content = plan.bodyAs === null ? bodyMembers(plan, params) : (own(params, plan.bodyAs) ?? null);
  const body = content === null && !hasParam(params, plan.bodyAs) ? null : renderBody(plan, content);
  const contentType = contentTypeOf(plan.bodyType, body);
  if (contentType !== null) headers['content-type'] = contentType;
  return {
    method: plan.method,
    pathAndQuery: query === '' ? path : `${path}?${query}`,
    headers,
    body,
  };
}

function renderPath(plan: RequestPlan, params: JsonObject): string {
  let path = '';
  for (const segment of plan.path) {
    if (segment.kind === 'literal') {
      path += `/${segment.text}`;
      continue;
    }
    const value = own(params, segment.name);
    if (value === undefined || misfit({ in: 'path', holds: segment.holds }, value) !== null) {
      throw new Error(`the param ${segment.name} does not fit into the path`);
    }
    path += `/${written(textOf(value), segment.holds)}`;
  }
  const read = readPath(path, true);
  const again = read.ok ? matchPattern(plan.path, read.segments) : null;
  if (again === null || Object.entries(again).some(([name, text]) => text !== textOf(own(params, name)))) {
    throw new Error('the rendered path does not match its template');
  }
  return path;
}

/** The `Content-Type` that a body is sent with; `null` if there is no body or its type is not known. */
function contentTypeOf(type: BodyType, body: RequestBody): string | null {
  if (body === null) return null;
  if (!Buffer.isBuffer(body)) return body.contentType;
  return type === 'form' ? 'application/x-www-form-urlencoded' : 'application/json';
}

/** The params that go into the body, in the order in which they were given; `null` if the request has no body. */
function bodyMembers(plan: RequestPlan, params: JsonObject): JsonObject | null {
  if (plan.body !== '*' && plan.body.length === 0) return null;
  const members: Record<string, Json> = {};
  for (const name of Object.keys(params)) {
    const value = own(params, name);
    if (value !== undefined && placeOf(plan, name)?.in === 'body') members[name] = value;
  }
  return members;
}

/**
 * A body: the same for equal content in the same order, whichever door the call came through. Names keep the order that
 * the caller chose, because it has a meaning for some upstreams (schemas in calls of language models).
 */
export function renderBody({ bodyType, formLists }: RequestPlan, content: Json): RequestBody {
  switch (bodyType) {
    case 'json':
      return Buffer.from(JSON.stringify(content));
    case 'form': {
      const text = isJsonObject(content) ? writeForm(content, formLists) : '';
      return text === '' ? null : Buffer.from(text);
    }
    case 'multipart':
      return isJsonObject(content) ? writeMultipart(content, formLists) : null;
    case 'opaque':
      return isFile(content) ? writeOpaque(content) : null;
  }
}

function hasParam(params: JsonObject, name: string | null): boolean {
  return name !== null && Object.hasOwn(params, name);
}

function own(params: JsonObject, name: string): Json | undefined {
  return Object.hasOwn(params, name) ? params[name] : undefined;
}

function textOf(value: Json | undefined): string {
  if (value === undefined || !isScalar(value)) throw new Error('a param without a text stands where a text is needed');
  return String(value);
}

function isScalar(value: Json): value is string | number | boolean {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
}
