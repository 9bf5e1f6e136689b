import type { Route } from '../config/configuration.ts';
import type { CallHeaders } from '../effects/model/action-call.ts';
import type { AnswerHead } from '../effects/model/answer.ts';
import { actingAgent } from '../effects/model/principal.ts';
import { isNeverSent } from '../effects/run/header-names.ts';
import type { Problem, RequestFault } from '../effects/model/run-request.ts';
import type { HttpTool } from '../effects/model/tool.ts';
import { connectionNames, passesBack } from '../upstreams/http/answer.ts';
import { headerRules, planOf, sortHeaders, takenHeaders } from '../upstreams/http/request-template.ts';
import { type Arrived, keyGoesOn, problemOf } from './arrival.ts';
import type { ProxiedUpstream } from './ports.ts';
import type { IncomingMessage } from 'node:http';

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
):
  | {
      readonly kind: 'headers';
      readonly headers: CallHeaders;
      /** Headers that are params of the tool, and the caller's own credentials. */
      readonly apart: Readonly<Record<string, string>>;
    }
  | { readonly kind: 'problem'; readonly problem: Problem } {
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
      agent_id: actingAgent(arrived.principal, arrived.agentId) ?? '',
      client_ip: arrived.address,
      host: headers.host ?? '',
      proto: 'encrypted' in request.socket ? 'https' : 'http',
      request_id: arrived.requestId,
    },
  });
  const twice = repeated(request.rawHeaders);
  if (sorted.faults.length + twice.length > 0)
    return {
      kind: 'problem',
      problem: problemOf(
        'invalid_request',
        'The headers do not have one meaning for every server.',
        sorted.faults.concat(twice),
      ),
    };
  for (const name in sorted.credentials) {
    const value = sorted.credentials[name];
    // `Authorization` is handled with the key, because it may be the gateway's own.
    if (value !== undefined && name !== 'authorization') apart[name] = value;
  }
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
 * own space (see {@link ownField}).
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
  // Clients follow the addresses in these.
  if (name === 'location' || name === 'content-location' || name === 'link') {
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

/** How addresses in the headers of an upstream's answer are turned into the gateway's own. */
export interface LinkContext {
  /** Of the route; empty where everything is the route. */
  readonly prefix: string;
  /** Origin of the upstream. */
  readonly upstreamUrl: string;
  /** Origin under which the caller knows the gateway. Few answers need it. */
  readonly origin: () => string;
  /** What becomes of addresses of other origins: clients send the gateway's key wherever a redirect or a page leads. */
  readonly foreignLinks: 'hide' | 'pass';
}

/** The origin that a request was sent to. Where a balancer ends TLS before the gateway, `public_url` knows better. */
export function originOfRequest({ headers, socket }: IncomingMessage, publicUrl: string): string {
  const { host = '' } = headers;
  const published = URL.canParse(publicUrl) ? new URL(publicUrl) : null;
  if (published !== null && published.host === host.toLowerCase()) return published.origin;
  return `${'encrypted' in socket ? 'https' : 'http'}://${host}`;
}

/**
 * A header with addresses, as the caller may have it: those of the upstream lead to the gateway. Those of other origins
 * stand in a header that no client follows, `svc-foreign-…`, unless the route passes them.
 */
function ownLinks(name: string, value: string, context: LinkContext): Readonly<Record<string, string>> {
  return name === 'link' ? ownLinkHeader(value, context) : ownAddress(name, value, context);
}

function ownAddress(name: string, value: string, context: LinkContext): Readonly<Record<string, string>> {
  const found = own(value, context);
  if (found.kind === 'foreign' && context.foreignLinks === 'hide') return { [`svc-foreign-${name}`]: value };
  return { [name]: found.kind === 'own' ? found.path : value };
}

/** Before an address of another origin in a field of JSON: no client follows it, and none takes it for the last page. */
const FOREIGN = 'svc-foreign:';

/** An address in a field of a JSON answer, as the caller may have it. */
export function ownField(address: string, context: LinkContext): string {
  // A template is no address yet: what stands behind the origin stays as it is written.
  const rest = address.startsWith(`${context.upstreamUrl}/`) ? address.slice(context.upstreamUrl.length) : null;
  if (rest !== null) return `${context.origin()}${context.prefix}${rest}`;
  const found = own(address, context);
  switch (found.kind) {
    case 'own':
      return `${found.whole ? context.origin() : ''}${found.path}`;
    case 'as_is':
      return address;
    case 'foreign':
      return context.foreignLinks === 'hide' ? `${FOREIGN}${address}` : address;
  }
}

/** RFC 8288: `<address>; rel="next", <address>; …`. */
const LINK = /\s*<([^<>]*)>((?:[^",<>]|"(?:[^"\\]|\\.)*")*)(?:,|$)/y;

function ownLinkHeader(value: string, context: LinkContext): Readonly<Record<string, string>> {
  const kept: string[] = [];
  const foreign: string[] = [];
  LINK.lastIndex = 0;
  for (let at = 0; at < value.length; at = LINK.lastIndex) {
    LINK.lastIndex = at;
    const [whole, address = '', params = ''] = LINK.exec(value) ?? [];
    // What cannot be read may be read by somebody else.
    if (whole === undefined) return context.foreignLinks === 'pass' ? { link: value } : { 'svc-foreign-link': value };
    const found = own(address.trim(), context);
    if (found.kind === 'foreign' && context.foreignLinks === 'hide') foreign.push(`<${address}>${params}`.trim());
    // Whole, where it was: client libraries put their base URL before what is a path, and that has the prefix already.
    else if (found.kind === 'own') kept.push(`<${found.whole ? context.origin() : ''}${found.path}>${params}`.trim());
    else kept.push(`<${address}>${params}`.trim());
  }
  return {
    ...(kept.length > 0 ? { link: kept.join(', ') } : {}),
    ...(foreign.length > 0 ? { 'svc-foreign-link': foreign.join(', ') } : {}),
  };
}

type Found =
  /** In the upstream: path, query and fragment in the gateway's space. `whole`: it named the origin. */
  | { readonly kind: 'own'; readonly path: string; readonly whole: boolean }
  /** Relative to the request's path, or no address that a client sends a request to. */
  | { readonly kind: 'as_is' }
  | { readonly kind: 'foreign' };

function own(address: string, { prefix, upstreamUrl }: LinkContext): Found {
  if (!URL.canParse(address, `${upstreamUrl}/`)) return { kind: 'foreign' };
  const url = new URL(address, `${upstreamUrl}/`);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return { kind: 'as_is' };
  if (url.origin !== upstreamUrl) return { kind: 'foreign' };
  const path = `${url.pathname}${url.search}${url.hash}`;
  if (/^[a-z][a-z0-9+.-]*:/i.test(address) || /^[/\\]{2}/.test(address))
    return { kind: 'own', path: `${prefix}${path}`, whole: true };
  return address.startsWith('/') ? { kind: 'own', path: `${prefix}${path}`, whole: false } : { kind: 'as_is' };
}
