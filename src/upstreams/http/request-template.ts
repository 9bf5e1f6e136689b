import { isJsonObject, type Json, type JsonObject, pointerTo } from '../../json/value.ts';
import { isFile } from '../../effects/model/files.ts';
import {
  type BodyType,
  type FormLists,
  isHttpTool,
  type QueryStyle,
  type RequestTemplate,
  rootOfName,
  type Tool,
} from '../../effects/model/tool.ts';
import type { HeaderSettings, ProxiedRequest, RequestBody } from '../../effects/upstream.ts';
import { foldedName, writeForm } from './form.ts';
import { writeMultipart, writeOpaque } from './multipart-body.ts';
import {
  isReadAlike,
  matchPattern,
  type PatternSegment,
  type QueryPlan,
  readPath,
  readPattern,
  type Slashes,
  writeQuery,
  written,
} from './url.ts';
import type { CallHeaders } from '../../effects/model/action-call.ts';
import {
  CREDENTIAL_HEADERS,
  DROPPED_HEADERS,
  HEADER_PLACEHOLDERS,
  isNeverSent,
  namesHeader,
  NOT_GOVERNED_HEADERS,
  VOLATILE_HEADERS,
  withoutOwnCookies,
} from '../../effects/run/header-names.ts';
import type { RequestFault } from '../../effects/model/run-request.ts';
import { connectionNames } from './answer.ts';

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

type Fate =
  | 'drop'
  /** Goes on to an upstream for which the gateway has no credentials; rules do not see it. */
  | 'credential'
  /** Goes on, is a fact for rules, and is part of the fingerprint. */
  | 'bound'
  /** Goes on and is a fact for rules. */
  | 'volatile'
  /** Has a `_`, which some servers read as `-`: a rule about one name would not see the other. */
  | 'ambiguous';

export interface HeaderRules {
  fate(name: string): Fate;
  /** Fates that are known, so that most headers need no call. */
  readonly fates: ReadonlyMap<string, Fate>;
  /** Headers that the gateway sets, with the placeholders in their values. */
  readonly set: readonly (readonly [string, string])[];
}

const NONE: HeaderSettings = { forward: [], drop: [], volatile: [], set: {} };

/** The most names whose fate one set of rules remembers. There is a limit because callers choose the names. */
const MOST_REMEMBERED = 500;

const compiled = new WeakMap<HeaderSettings, WeakMap<HeaderSettings, HeaderRules>>();

/** Combines the two settings into rules, compiled once for each pair. The settings of a route win. */
export function headerRules(upstream: HeaderSettings = NONE, route: HeaderSettings = NONE): HeaderRules {
  let byRoute = compiled.get(upstream);
  if (byRoute === undefined) {
    byRoute = new WeakMap();
    compiled.set(upstream, byRoute);
  }
  let rules = byRoute.get(route);
  if (rules === undefined) {
    rules = makeRules({
      forward: [...upstream.forward, ...route.forward],
      drop: [...upstream.drop, ...route.drop],
      volatile: [...VOLATILE_HEADERS, ...upstream.volatile, ...route.volatile],
      set: { ...upstream.set, ...route.set },
    });
    byRoute.set(route, rules);
  }
  return rules;
}

function makeRules({ forward, drop, volatile, set }: HeaderSettings): HeaderRules {
  const fates = new Map<string, Fate>();
  const judge = (name: string): Fate => {
    if (isNeverSent(name) || Object.hasOwn(set, name)) return 'drop';
    // It says how to read the body.
    if (name === 'content-type') return 'bound';
    const isForwarded = namesHeader(forward, name);
    if (!isForwarded && (namesHeader(drop, name) || namesHeader(DROPPED_HEADERS, name.replaceAll('_', '-'))))
      return 'drop';
    if (!isForwarded && name.includes('_')) return 'ambiguous';
    if (namesHeader(CREDENTIAL_HEADERS, name)) return 'credential';
    return namesHeader(volatile, name) ? 'volatile' : 'bound';
  };
  return {
    set: Object.entries(set),
    fates,
    fate: (name) => {
      let fate = fates.get(name);
      if (fate === undefined) {
        fate = judge(name);
        if (fates.size < MOST_REMEMBERED) fates.set(name, fate);
      }
      return fate;
    },
  };
}

export type HeaderPlaceholders = Readonly<Record<(typeof HEADER_PLACEHOLDERS)[number], string>>;

const taken = new WeakMap<Tool, { readonly credential: string | null; readonly names: readonly string[] }>();

/**
 * Headers that the params of a tool, or the gateway, set in its requests.
 * @param credential the header of the gateway's own credentials
 */
export function takenHeaders(tool: Tool | null, credential: string | undefined): readonly string[] {
  if (tool === null) return [];
  const own = credential?.toLowerCase() ?? null;
  const known = taken.get(tool);
  if (known?.credential === own) return known.names;
  const names: string[] = [];
  if (isHttpTool(tool)) {
    const plan = planOf(tool.call.request);
    names.push(...plan.headers.map(([, header]) => header));
    // A body with files is written anew, and so is its type.
    if (takesFiles(plan)) names.push('content-type');
  }
  if (own !== null) names.push(own);
  if (tool.idempotent.kind === 'header') names.push(tool.idempotent.header.toLowerCase());
  taken.set(tool, { credential: own, names });
  return names;
}

export interface HeaderTarget {
  readonly rules: HeaderRules;
  /** Headers that a param or the gateway sets: those of the caller are dropped. */
  readonly taken: readonly string[];
  /** The gateway has credentials for the upstream: those of the caller are dropped. */
  readonly ownCredentials: boolean;
  /** The gateway reads the answer. */
  readonly governed: boolean;
  readonly values: HeaderPlaceholders;
}

/** Media types that the kind of a body already implies. */
const USUAL_TYPES: readonly string[] = [
  'application/json',
  'application/x-www-form-urlencoded',
  'multipart/form-data',
  'application/octet-stream',
];

/** Sorts the headers of a request (lower-case names) by what happens to them, and adds those that the gateway sets. */
export function sortHeaders(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  target: HeaderTarget,
): {
  readonly headers: CallHeaders;
  readonly credentials: Readonly<Record<string, string>>;
  readonly faults: readonly RequestFault[];
} {
  const { rules, taken, values } = target;
  const sent: Record<string, string> = {};
  const bound: Record<string, string> = {};
  const credentials: Record<string, string> = {};
  const faults: RequestFault[] = [];
  const ending = connectionNames(headers['connection']);
  for (const name of Object.keys(headers)) {
    const value = headers[name];
    if (value === undefined || taken.includes(name)) continue;
    const fate = rules.fates.get(name) ?? rules.fate(name);
    if (fate === 'drop') continue;
    const text = typeof value === 'string' ? value : value.join(', ');
    if (fate === 'ambiguous') faults.push({ path: pathOf(name), message: WITH_UNDERSCORE });
    else if (name.includes('_') && headers[name.replaceAll('_', '-')] !== undefined)
      faults.push({ path: pathOf(name), message: 'stands in two spellings, with "_" and with "-"' });
    else if (ending?.has(name) === true)
      faults.push({ path: pathOf(name), message: 'is named by the header Connection, and would not go on' });
    else if (fate === 'credential') {
      const others = name === 'cookie' ? withoutOwnCookies(text) : text;
      if (!target.ownCredentials && others !== '') credentials[name] = others;
    } else if (!target.governed || !NOT_GOVERNED_HEADERS.includes(name)) {
      sent[name] = text;
      if (fate === 'bound') bind(bound, name, text);
    }
  }
  if (!taken.includes('x-request-id') && (rules.fates.get('x-request-id') ?? rules.fate('x-request-id')) !== 'drop')
    sent['x-request-id'] ??= values.request_id;
  for (const [name, template] of rules.set) {
    const value = template.replaceAll(PLACEHOLDER, (_, placeholder: keyof HeaderPlaceholders) => values[placeholder]);
    if (value !== '') sent[name] = value;
  }
  return { headers: { sent, bound }, credentials, faults };
}

const PLACEHOLDER = new RegExp(`\\{(${HEADER_PLACEHOLDERS.join('|')})\\}`, 'g');

const WITH_UNDERSCORE =
  'has a "_" in its name, which some servers read as "-": add the name to headers.forward of the route, or to headers.drop';

function bind(bound: Record<string, string>, name: string, text: string): void {
  if (name === 'prefer') {
    const preferences = text.split(',').filter((one) => !WAIT.test(one));
    if (preferences.length > 0) bound[name] = preferences.join(',').trim();
    return;
  }
  if (name !== 'content-type') {
    bound[name] = text;
    return;
  }
  const media = mediaType(text);
  if (!USUAL_TYPES.includes(media)) bound[name] = media;
}

/** How long the caller waits for the answer is no part of the action: it may wait longer when it asks again. */
const WAIT = /^\s*wait\s*=\s*(\d+|"\d*")\s*$/i;

/** The media type of a `Content-Type`, in lower case, without its parameters. */
export function mediaType(contentType: string): string {
  const end = contentType.indexOf(';');
  return (end === -1 ? contentType : contentType.slice(0, end)).trim().toLowerCase();
}

function pathOf(name: string): string {
  return `/headers${pointerTo([name])}`;
}
