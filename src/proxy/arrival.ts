import type { IncomingMessage } from 'node:http';
import { OWN_PATH } from '../config/resolve-routes.ts';
import type { Code } from '../effects/model/codes.ts';
import { actingAgent, type Principal } from '../effects/model/principal.ts';
import type { Problem, RequestFault } from '../effects/model/run-request.ts';
import { holdsKey, holdsOwnForm, keyFromRequest, USUAL_CARRIERS } from '../identity/key-format.ts';
import type { Identified } from '../identity/identified.ts';
import { percentDecoded } from '../bytes/percent-decoded.ts';
import { isNested, type QueryPairs, readPath, REPEATED } from '../upstreams/http/url.ts';
import { type ErrorStyle, PLAIN_STYLE } from './error-shape.ts';
import type { ProxyPorts } from './ports.ts';
import type { RouteMatch, RouteTable } from './route-table.ts';
import type { Socket } from 'node:net';
import { pointerTo } from '../json/value.ts';
import { type KnownOfRequest, wordOf } from '../telemetry/access.ts';
import type { KeyCarriers } from '../effects/model/key.ts';

/** A request whose sender is known, and whose path and query have only one meaning. */
export interface Arrived {
  readonly kind: 'arrived';
  readonly principal: Principal;
  /** The key in the clear, to check later whether it is still valid. */
  readonly key: string;
  /** Headers that contain it, besides `Authorization`. */
  readonly carriedIn: readonly string[];
  /** An `Authorization` header for the upstream: it does not hold the gateway's key. */
  readonly authorization: string | null;
  /** The key came in the query, which is deprecated. */
  readonly viaQuery: boolean;
  /** The key's workspace; empty if it has none. */
  readonly workspace: string;
  /** The agent that the request names. */
  readonly agentId: string | null;
  readonly match: RouteMatch;
  /** The path that is sent: exactly the one that was matched. */
  readonly path: string;
  readonly query: ReadQuery;
  readonly address: string;
  /** The id of the answer. The request to the upstream gets it too, unless the caller chose one. */
  readonly requestId: string;
  /** Store time, ms, and how long authentication took. */
  readonly authenticatedAt: number;
  readonly authenticatedInMs: number;
}

export type Arrival =
  /** The path is one of the gateway's own. */
  | { readonly kind: 'own' }
  | { readonly kind: 'problem'; readonly problem: Problem; readonly viaQuery: boolean; readonly style: ErrorStyle }
  | Arrived;

/**
 * Receives a request. Finds out who sends it, then whether its framing, path and query have only one meaning, then what
 * it matches. Returns a promise only if the key is not in the cache.
 */
export function receive(
  ports: ProxyPorts,
  identities: Identities,
  table: RouteTable,
  request: IncomingMessage,
  address: string,
  requestId: string,
): Arrival | Promise<Arrival> {
  const began = performance.now();
  const url = request.url ?? '/';
  const mark = url.indexOf('?');
  const path = mark === -1 ? url : url.slice(0, mark);
  const entrance = ports.entranceOf(request);
  if (entrance.kind === 'own' && OWN_PATH.test(path)) return { kind: 'own' };
  const located = table.locate(path, entrance);
  const carriers = located?.route.route.keys ?? USUAL_CARRIERS;
  const style = located?.route.route ?? PLAIN_STYLE;
  const query = readQuery(mark === -1 ? null : url.slice(mark + 1), carriers.query);
  const { keys } = query;
  const credentials = keyFromRequest(
    { headers: request.headers, query: keys.length === 0 ? {} : { api_key: keys } },
    // The setting matters only if there is a key in the query.
    keys.length === 0 ? 'allow' : ports.settings().queryKey,
    carriers,
  );
  const viaQuery = keys.length > 0;
  if (credentials.kind === 'missing')
    return problem('missing_key', missing(carriers, request.headers.authorization), viaQuery, style);
  if (credentials.kind === 'invalid') return problem('invalid_key', credentials.detail, viaQuery, style);
  const { key, foreignAuthorization, carriedIn } = credentials;
  const identified = (who: Identified): Arrival => {
    if (who.kind === 'problem') return { kind: 'problem', problem: who.problem, viaQuery, style };
    const authenticatedInMs = Math.round((performance.now() - began) * 1000) / 1000;
    const fault = framingFault(request) ?? queryFault(query.faults) ?? keyFault(request, path, query, key);
    if (fault !== null) return { kind: 'problem', problem: fault, viaQuery, style };
    const plain = readPath(located?.rest ?? path, located?.route.takesSlashes);
    if (!plain.ok) return problem('invalid_request', `The path cannot be used: ${plain.message}.`, viaQuery, style);
    const match: RouteMatch =
      located === null ? { kind: 'none' } : table.match(located.route, request.method ?? 'GET', plain.segments);
    if (match.kind !== 'rule' && plain.segments.some((segment) => segment.includes('/')))
      return problem('invalid_request', ENCODED_SLASH, viaQuery, style);
    const repeated = query.repeated.length === 0 || takesLists(match) ? null : queryFault(query.repeated);
    if (repeated !== null) return { kind: 'problem', problem: repeated, viaQuery, style };
    const { principal } = who;
    return {
      kind: 'arrived',
      principal,
      key,
      carriedIn,
      authorization: foreignAuthorization,
      viaQuery,
      workspace: principal.kind === 'administrative' ? '' : (principal.workspace ?? ''),
      agentId: agentOf(request),
      match,
      path: located?.rest ?? path,
      query,
      address,
      requestId,
      authenticatedAt: Math.round(ports.now() - authenticatedInMs),
      authenticatedInMs,
    };
  };
  const who = identities.of(request, key, address);
  return who instanceof Promise ? who.then(identified) : identified(who);
}

/** What is told of who sends, of what it is for, and of what the headers of its answer say. */
export function knownOf(
  arrived: Arrived | null,
  answer: Readonly<Record<string, number | string | readonly string[] | undefined>>,
): KnownOfRequest {
  const match = arrived?.match;
  return {
    workspace: arrived?.workspace ?? '',
    agentId: arrived === null ? null : actingAgent(arrived.principal, arrived.agentId),
    tool: match?.kind === 'rule' ? match.tool.name : null,
    upstream: match === undefined || match.kind === 'none' ? null : match.route.upstream,
    rpc: null,
    authenticatedInMs: arrived?.authenticatedInMs ?? null,
    decision: wordOf(answer['svc-decision']),
    effectId: wordOf(answer['svc-effect-id']),
    lasts: false,
  };
}

/**
 * Path and query as they are sent: the path that was matched, and the query without the key.
 * @param query as it was written anew; `null`: the original bytes
 */
export function pathAndQuery({ path, query: { forwarded } }: Arrived, query: string | null): string {
  const sent = query ?? forwarded;
  return sent === '' ? path : `${path}?${sent}`;
}

const ENCODED_SLASH =
  'The path has an encoded slash (%2F) that no rule of the route takes, or that leads to another rule once it is decoded: declare the param as *name at the end of match, or name it in encoded_slashes.';

export function problemOf(code: Code, detail: string, errors: readonly RequestFault[] = []): Problem {
  return { code, detail, errors, retryAfterMs: null };
}

function problem(code: Code, detail: string, viaQuery: boolean, style: ErrorStyle): Arrival {
  return { kind: 'problem', problem: problemOf(code, detail), viaQuery, style };
}

/** What to do if no carrier of the route has a key. */
function missing({ headers, schemes, query }: KeyCarriers, authorization: string | undefined): string {
  const [scheme = ''] = authorization?.split(' ') ?? [];
  if (
    authorization !== undefined &&
    holdsOwnForm(authorization) &&
    !schemes.some((one) => one === scheme.toLowerCase())
  )
    return `This route takes no key as Authorization: ${scheme.slice(0, 20)}. Add ${scheme.toLowerCase().slice(0, 20)} to its keys in the configuration, or send X-API-Key.`;
  if (headers.includes('x-api-key')) return 'Send an API key in the header X-API-Key.';
  const places = [...headers, ...schemes.map((one) => `Authorization: ${one}`), ...query.map((name) => `?${name}=`)];
  return `Send an API key in ${places.join(' or ')}.`;
}

/** Node's parser refuses contradictory framing. What it accepts must still have the same meaning for every server. */
function framingFault(request: IncomingMessage): Problem | null {
  const { headers } = request;
  const coding = headers['transfer-encoding'];
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || headers['content-length'] !== undefined)) {
    return problemOf('invalid_request', 'The framing of the body is ambiguous: send Content-Length, or chunked alone.');
  }
  const bodyless = request.method === 'GET' || request.method === 'HEAD';
  if (bodyless && (coding !== undefined || Number(headers['content-length'] ?? 0) > 0)) {
    return problemOf('invalid_request', `A ${request.method} has no body here.`);
  }
  return null;
}

function queryFault(faults: readonly RequestFault[]): Problem | null {
  return faults.length === 0
    ? null
    : problemOf('invalid_request', 'The query does not have one meaning for every server.', faults);
}

/** Whether a tool reads the query itself, where a name may stand more than once. */
function takesLists(match: RouteMatch): boolean {
  return match.kind === 'rule' && isNested(match.plan.query);
}

/** The gateway's key never goes on, even if a caller put it in a place where it does not belong. */
function keyFault(request: IncomingMessage, path: string, query: ReadQuery, key: string): Problem | null {
  // Of a path that nobody can decode, readPath says so.
  const plain = path.includes('%') ? (percentDecoded(path) ?? path) : path;
  const goesOn =
    plain.includes(key) ||
    query.forwarded.includes(key) ||
    query.pairs.some(([name, value]) => name.includes(key) || value.includes(key));
  return goesOn ? keyGoesOn() : keyIsKept(request, plain);
}

/** The ledger keeps some texts, such as the path, so they must not contain another key either. */
function keyIsKept(request: IncomingMessage, path: string): Problem | null {
  const { 'svc-agent-id': agent, 'idempotency-key': key } = request.headers;
  if (!holdsKey(path) && (agent === undefined || !holdsKey(String(agent))) && !holdsKey(String(key ?? ''))) return null;
  return problemOf(
    'invalid_request',
    'The path, Svc-Agent-Id or Idempotency-Key holds an API key, which would be kept and shown. Send keys in X-API-Key only.',
  );
}

/** The refusal of a request that would take the gateway's key to an upstream. */
export function keyGoesOn(): Problem {
  return problemOf(
    'invalid_request',
    'The request would carry the gateway’s key to the upstream. Send it in X-API-Key only.',
  );
}

function agentOf(request: IncomingMessage): string | null {
  const named = request.headers['svc-agent-id'];
  return typeof named === 'string' && named !== '' ? named : null;
}

/** Who sends requests. A key that was just verified on a connection is not verified again for a short time. */
export type Identities = ReturnType<typeof createIdentities>;

interface Remembered {
  readonly key: string;
  readonly who: Identified;
  readonly at: number;
  readonly change: number;
}

/** How long a verified key counts on its connection without another check, ms. */
const REMEMBERED_MS = 500;

/**
 * Verifies a key at most twice a second on one connection. In between, the earlier result counts if nothing about keys
 * or pauses has changed since.
 */
export function createIdentities(ports: Pick<ProxyPorts, 'identify' | 'onAccessChanged'>) {
  const remembered = new WeakMap<Socket, Remembered>();
  let change = 0;
  const unsubscribe = ports.onAccessChanged(() => {
    change += 1;
  });
  return {
    /** Returns a promise only if the key is not in the cache. */
    of: (request: IncomingMessage, key: string, address: string): Identified | Promise<Identified> => {
      const now = performance.now();
      const before = remembered.get(request.socket);
      if (before?.key === key && before.change === change && now - before.at < REMEMBERED_MS) return before.who;
      const asked = change;
      const keep = (who: Identified): Identified => {
        if (who.kind === 'principal') remembered.set(request.socket, { key, who, at: now, change: asked });
        return who;
      };
      const who = ports.identify(key, address);
      return who instanceof Promise ? who.then(keep) : keep(who);
    },
    close: unsubscribe,
  };
}

/** A query, read strictly. */
export interface ReadQuery {
  /** Decoded names and values in their order, without `api_key`. */
  readonly pairs: QueryPairs;
  /** The keys in the query, for authentication. */
  readonly keys: readonly string[];
  /** What goes on: the original bytes without `api_key`, and without a `?` if nothing is left. */
  readonly forwarded: string;
  /** What is ambiguous about it. */
  readonly faults: readonly RequestFault[];
  /** Names that stand more than once: ambiguous unless a tool declares a list. */
  readonly repeated: readonly RequestFault[];
}

const NOTHING: ReadQuery = { pairs: [], keys: [], forwarded: '', faults: [], repeated: [] };

/**
 * Reads the query of a request line. A name that appears more than once, in any case, is told apart, because servers
 * differ in which of two they use.
 * @param text without the `?`; `null` if there is none
 * @param keyNames parameters that carry keys. `api_key` never goes on, even if it is not among them
 */
export function readQuery(text: string | null, keyNames: readonly string[] = ['api_key']): ReadQuery {
  if (text === null || text === '') return NOTHING;
  const pairs: (readonly [string, string])[] = [];
  const folded = new Set<string>();
  const keys: string[] = [];
  const kept: string[] = [];
  const faults: RequestFault[] = [];
  const repeated: RequestFault[] = [];
  const faultOf = (name: string, message: string): RequestFault => ({
    path: `/query${pointerTo([name])}`,
    message,
  });
  const add = (name: string, message: string): void => {
    faults.push(faultOf(name, message));
  };
  if (!/^[\x21-\x7e]*$/.test(text) || text.includes('#'))
    add('', 'the query has a character that must be percent-encoded');
  for (const pair of text.split('&')) {
    const equals = pair.indexOf('=');
    const name = decode(equals === -1 ? pair : pair.slice(0, equals));
    const value = equals === -1 ? '' : decode(pair.slice(equals + 1));
    const asKey = name?.toLowerCase() ?? '';
    if (asKey === 'api_key' || keyNames.includes(asKey)) {
      if (name !== null && keyNames.includes(name) && value !== null) keys.push(value);
      continue;
    }
    kept.push(pair);
    if (pair === '') continue;
    if (name === null || value === null) add('', 'a name or value of the query is not percent-encoded UTF-8');
    else if (pair.includes(';')) add(name, 'has a ";", which some servers take for a separator; percent-encode it');
    else if (name === '' || name === '__proto__') add(name, 'is not a name');
    else {
      if (folded.has(name.toLowerCase())) repeated.push(faultOf(name, REPEATED));
      folded.add(name.toLowerCase());
      pairs.push([name, value]);
    }
  }
  return { pairs, keys, forwarded: kept.join('&'), faults, repeated };
}

function decode(text: string): string | null {
  if (!/[%+]/.test(text)) return text;
  return percentDecoded(text.replaceAll('+', ' '));
}
