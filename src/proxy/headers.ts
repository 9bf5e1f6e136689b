import type { IncomingMessage } from 'node:http';
import type { Route } from '../config/configuration.ts';
import type { CallHeaders } from '../effects/model/action-call.ts';
import type { AnswerHead } from '../effects/model/answer.ts';
import { isNeverSent } from '../effects/run/header-names.ts';
import type { Problem, RequestFault } from '../effects/model/run-request.ts';
import type { HttpTool } from '../effects/model/tool.ts';
import { connectionNames, passesBack } from '../upstreams/http/answer.ts';
import { headerRules, sortHeaders, takenHeaders } from '../upstreams/http/header-rules.ts';
import { planOf } from '../upstreams/http/request-template.ts';
import { type Arrived, keyGoesOn, problemOf } from './arrival.ts';
import { isLinkHeader, type LinkContext, ownLinks } from './links.ts';
import type { ProxiedUpstream } from './ports.ts';

/** The headers of a request that go on. */
export interface ForwardedHeaders {
  readonly kind: 'headers';
  readonly headers: CallHeaders;
  /** Headers that are params of the tool, and the caller's own credentials. */
  readonly apart: Readonly<Record<string, string>>;
}

/** What is needed to sort the headers of one request. */
export interface HeaderContext {
  readonly tool: HttpTool;
  readonly route: Route;
  readonly upstream: ProxiedUpstream | null;
  readonly arrived: Pick<
    Arrived,
    'key' | 'carriedIn' | 'authorization' | 'address' | 'agentId' | 'requestId' | 'principal'
  >;
  /** The gateway reads the answer. */
  readonly governed: boolean;
}

/**
 * The headers of a request that go on to the upstream: all that no rule holds back, sorted into params, facts and
 * credentials.
 */
export function forwardedHeaders(
  request: Pick<IncomingMessage, 'headers' | 'rawHeaders' | 'socket'>,
  context: HeaderContext,
): ForwardedHeaders | { readonly kind: 'problem'; readonly problem: Problem } {
  const { headers } = request;
  const { tool, route, upstream, arrived } = context;
  const plan = planOf(tool.call.request);
  const apart: Record<string, string> = {};
  const sorted = sortHeaders(headers, {
    rules: headerRules(upstream?.headers, route.headers),
    taken: [...takenHeaders(tool, upstream?.credentials?.header), ...arrived.carriedIn],
    ownCredentials: upstream?.credentials !== null,
    governed: context.governed,
    values: {
      agent_id: arrived.agentId ?? (arrived.principal.kind === 'agent' ? arrived.principal.agentId : ''),
      client_ip: arrived.address,
      host: headers.host ?? '',
      proto: 'encrypted' in request.socket ? 'https' : 'http',
      request_id: arrived.requestId,
    },
  });
  const faults = sorted.faults.concat(repeated(request.rawHeaders));
  if (faults.length > 0)
    return {
      kind: 'problem',
      problem: problemOf('invalid_request', 'The headers do not have one meaning for every server.', faults),
    };
  // `Authorization` is handled with the key, because it may be the gateway's own.
  const { authorization: _, ...credentials } = sorted.credentials;
  Object.assign(apart, credentials);
  if (arrived.authorization !== null && upstream?.credentials === null) apart['authorization'] = arrived.authorization;
  for (const [, header] of plan.headers) {
    const value = headers[header];
    if (typeof value === 'string' && !isNeverSent(header)) apart[header] = value;
  }
  return carries(apart, arrived.key) || carries(sorted.headers.sent, arrived.key)
    ? { kind: 'problem', problem: keyGoesOn() }
    : { kind: 'headers', headers: sorted.headers, apart };
}

function carries(headers: Readonly<Record<string, string>>, key: string): boolean {
  for (const name in headers) if (name.includes(key) || headers[name]?.includes(key) === true) return true;
  return false;
}

/** If one of these comes twice, some servers use the first and some the last. */
const ONCE: readonly string[] = [
  'authorization',
  'content-encoding',
  'content-type',
  'idempotency-key',
  'svc-agent-id',
];

function repeated(rawHeaders: readonly string[]): readonly RequestFault[] {
  let seen = 0;
  const faults: RequestFault[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = (rawHeaders[index] ?? '').toLowerCase();
    const bit = 1 << ONCE.indexOf(name);
    if (!ONCE.includes(name)) continue;
    if ((seen & bit) !== 0) faults.push({ path: `/headers/${name}`, message: 'stands more than once' });
    seen |= bit;
  }
  return faults;
}

/**
 * The headers of an upstream's answer that go back to the caller, with the addresses in them turned into the gateway's
 * own space (see links.ts).
 */
export function returnedHeaders(
  headers: Readonly<Record<string, string | readonly string[] | number | undefined>>,
  options: LinkContext & { readonly setCookie: boolean },
): Record<string, string | string[]> {
  const { connection } = headers;
  const named = connectionNames(typeof connection === 'number' ? undefined : connection);
  const returned: Record<string, string | string[]> = {};
  for (const name of Object.keys(headers)) {
    const value = headers[name];
    if (value !== undefined && passesBack(name, options.setCookie, named)) addOwn(returned, name, value, options);
  }
  return returned;
}

/** The same for headers that were sorted out when the answer was read. It may have been cut, so it has no length. */
export function readHeaders(headers: AnswerHead['headers'], links: LinkContext): Record<string, string | string[]> {
  const returned: Record<string, string | string[]> = {};
  for (const name of Object.keys(headers)) {
    const value = headers[name];
    if (value !== undefined && name !== 'content-length') addOwn(returned, name, value, links);
  }
  return returned;
}

function addOwn(
  returned: Record<string, string | string[]>,
  name: string,
  value: string | readonly string[] | number,
  options: LinkContext,
): void {
  if (isLinkHeader(name)) {
    const links = ownLinks(name, typeof value === 'object' ? value.join(', ') : String(value), options);
    for (const [own, text] of Object.entries(links)) returned[own] = asBytes(text);
  } else returned[name] = typeof value === 'object' ? value.map(asBytes) : asBytes(String(value));
}

/**
 * The bytes of headers come decoded as UTF-8 but are written as Latin-1. This keeps the bytes of characters outside
 * ASCII unchanged.
 */
function asBytes(value: string): string {
  return !/[^ -~\t]/.test(value) ? value : Buffer.from(value, 'utf8').toString('latin1');
}
