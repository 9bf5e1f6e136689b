import type { IncomingMessage } from 'node:http';
import { NOT_GOVERNED_HEADERS } from '../effects/run/header-names.ts';
import type { Principal } from '../effects/model/principal.ts';
import type { Problem } from '../effects/model/run-request.ts';
import { errors } from 'undici';
import { ConnectFailed } from '../upstreams/http/connect.ts';
import { MAY_BE_REFUSED } from '../upstreams/http/tls-faults.ts';
import { LinksUnreadable } from './json-links.ts';
import { type Arrived, keyGoesOn, pathAndQuery, problemOf } from './arrival.ts';
import type { ReadRequest } from './governed.ts';
import { forwardedHeaders, originOfRequest } from './headers.ts';
import type { LiveConnection } from '../identity/live.ts';
import type { ProxyPorts, ReadCall, ReadVerdict } from './ports.ts';
import type { ObservedRead, PassedRead } from './read-ledger.ts';
import type { RouteMatch } from './route-table.ts';
import { holdsOwnKey } from '../effects/run/check-call.ts';
import type { AnswerContext } from './answer.ts';

export interface StreamedRead
  extends Pick<AnswerContext, 'prefix' | 'setCookie' | 'origin' | 'foreignLinks' | 'links' | 'style'> {
  readonly upstreamId: string;
  /** Origin of the upstream. */
  readonly upstreamUrl: string;
  /** Path and query that are sent, exactly as they were matched. */
  readonly pathAndQuery: string;
  readonly headers: Record<string, string>;
  readonly body: Buffer | null;
  /** How long each wait for the next bytes may take, ms; `null`: as the upstream's settings say. */
  readonly timeoutMs: number | null;
  readonly passed: PassedRead;
  readonly live: Pick<LiveConnection, 'key' | 'address' | 'mayStay'>;
}

/** Checks and judges a read by its own rule, or as undeclared, and prepares it for streaming. */
export function judgeRead(
  ports: ProxyPorts,
  arrived: Arrived,
  match: Exclude<RouteMatch, { kind: 'none' }>,
  request: IncomingMessage,
  read: Extract<ReadRequest, { kind: 'read' }>,
): { readonly kind: 'stream'; readonly read: StreamedRead } | Exclude<ReadVerdict, { kind: 'stream' }> {
  const { tool } = match;
  const isDeclared = match.kind === 'rule';
  const catalog = ports.catalog();
  const faults = isDeclared ? catalog.check(tool, read.params) : [];
  if (faults.length > 0 && ports.policyMode() === 'enforce') {
    return {
      kind: 'problem',
      problem: problemOf('invalid_request', `The call does not fit the tool ${tool.name}.`, faults),
    };
  }
  const { principal, workspace } = arrived;
  if (holdsOwnKey(read.params, principal.keyId)) return { kind: 'problem', problem: keyGoesOn() };
  const upstreamId = match.route.upstream;
  const upstream = ports.upstream(upstreamId);
  const forwarded = forwardedHeaders(request, { tool, route: match.route, upstream, arrived, governed: false });
  if (forwarded.kind === 'problem') return forwarded;
  const call: ReadCall = {
    principal,
    workspace,
    agentId: arrived.agentId,
    tool,
    upstream: upstreamId,
    target: isDeclared && faults.length === 0 ? (catalog.target(tool, read.params) ?? tool.name) : tool.name,
    params: read.params,
    headers: forwarded.headers.sent,
    requestIp: arrived.address,
  };
  const verdict = ports.evaluateRead(call);
  if (verdict.kind !== 'stream') return verdict;
  if (upstream === null) return { kind: 'problem', problem: noUpstream() };
  const mayStay = (now: Principal): boolean => ports.evaluateRead({ ...call, principal: now }).kind === 'stream';
  const observed = faults.length > 0 ? { would: 'invalid_request', rule: null } : verdict.observed;
  if (observed !== null) ports.observed(observed.would);
  // Counted here and not in the judge, because an open stream is judged again and again.
  if (verdict.shadow.length > 0) ports.shadowed(verdict.shadow);
  const headers: Record<string, string> = { ...forwarded.headers.sent, ...forwarded.apart };
  // What is looked into has to come whole and plain.
  if (match.route.links.length > 0) for (const name of NOT_GOVERNED_HEADERS) delete headers[name];
  if (upstream.credentials !== null) headers[upstream.credentials.header.toLowerCase()] = upstream.credentials.value;
  return {
    kind: 'stream',
    read: {
      upstreamId,
      upstreamUrl: upstream.url,
      pathAndQuery: pathAndQuery(arrived, read.query),
      headers,
      // Tools that take files are writes.
      body: Buffer.isBuffer(read.body) ? read.body : null,
      timeoutMs: isDeclared ? tool.timeoutMs : null,
      prefix: match.route.prefix,
      setCookie: match.route.setCookie,
      origin: () => originOfRequest(request, ports.settings().publicUrl),
      foreignLinks: match.route.foreignLinks,
      links: match.route.links,
      style: match.route,
      passed: passedBy(arrived, verdict, match, observed, request.method),
      live: { key: arrived.key, address: arrived.address, mayStay },
    },
  };
}

function passedBy(
  { workspace, principal, path }: Arrived,
  { agentId, rule, policyVersion }: Extract<ReadVerdict, { kind: 'stream' }>,
  match: Exclude<RouteMatch, { kind: 'none' }>,
  observed: Omit<ObservedRead, 'example'> | null,
  method = 'GET',
): PassedRead {
  return {
    workspace,
    agentId,
    keyId: principal.keyId,
    tool: match.kind === 'rule' ? match.tool.name : null,
    upstream: match.route.upstream,
    rule,
    policyVersion,
    observed: observed === null ? null : { ...observed, example: `${method} ${path}`.slice(0, MAX_EXAMPLE) },
  };
}

/** The most characters of method and path that are kept of a read that policy only observed. */
const MAX_EXAMPLE = 300;

/** The refusal of a read or a tunnel for which the agent has no place left. */
export const BUSY: Problem = {
  ...problemOf('busy', 'This agent has too many reads or tunnels to this upstream under way. Nothing was sent.'),
  retryAfterMs: 1000,
};

/** What the caller of a read or a tunnel is told where no answer came. */
export function failureOf(error: Error, upstreamUrl: string): { readonly code: string; readonly message: string } {
  if (error instanceof ConnectFailed)
    return { code: 'connect_failed', message: `The upstream could not be reached: ${error.message}.` };
  const late = error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError;
  return {
    code: 'upstream_refused',
    message: late
      ? 'The upstream did not answer within the time-out.'
      : error instanceof LinksUnreadable
        ? error.message
        : isNewOverTls(upstreamUrl, error)
          ? `The connection broke before the answer came; ${MAY_BE_REFUSED}.`
          : 'The upstream gave no answer that can be read.',
  };
}

/** Whether nothing was ever received on the connection that broke. What TLS itself has read does not count. */
function isNewOverTls(upstreamUrl: string, error: Error): boolean {
  return upstreamUrl.startsWith('https:') && error instanceof errors.SocketError && error.socket?.bytesRead === 0;
}

function noUpstream(): Problem {
  return { ...problemOf('not_ready', 'The upstream of this route is not there.'), retryAfterMs: 1000 };
}
