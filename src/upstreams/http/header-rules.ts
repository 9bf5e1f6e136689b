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
import { isHttpTool, type Tool } from '../../effects/model/tool.ts';
import { pointerTo } from '../../json/value.ts';
import { connectionNames } from './answer.ts';
import { planOf, takesFiles } from './request-template.ts';
import type { HeaderSettings } from '../../effects/upstream.ts';

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
