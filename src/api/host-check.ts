import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import type { Route } from '../config/configuration.ts';
import { type Entrance, placeOf } from '../config/entrance.ts';
import type { Problem } from '../effects/model/run-request.ts';
import { listenerOf } from './listeners.ts';
import type { ApiSettings } from './ports.ts';
import { plainProblem } from './problem.ts';

type HostSettings = Pick<ApiSettings, 'publicUrl' | 'allowedHosts'>;

const LOOPBACK = ['127.0.0.1', '::1', 'localhost'] as const;

/**
 * Whether a `Host` header names this gateway: the address that the connection came in on, the host of `public_url`, a
 * configured name, and on loopback any loopback name. Ports are ignored. Protects against DNS rebinding.
 * @param localAddress of the socket; `undefined` if there is none
 */
function isKnownHost(host: string | undefined, localAddress: string | undefined, settings: HostSettings): boolean {
  const name = host === undefined ? null : hostName(host);
  if (name === null) return false;
  const bound = localAddress?.replace(/^::ffff:/, '').toLowerCase();
  if (name === bound) return true;
  const published = hostName(settings.publicUrl.replace(/^https?:\/\//i, '').replace(/\/.*$/, ''));
  if (name === published) return true;
  if (settings.allowedHosts.some((allowed) => allowed.toLowerCase() === name)) return true;
  const onLoopback = [bound, published].some((address) => LOOPBACK.some((loopback) => loopback === address));
  return onLoopback && LOOPBACK.some((loopback) => loopback === name);
}

/** How many known hosts are remembered. Limited, because a client may add any port to a name. */
const MAX_REMEMBERED = 100;

/**
 * Why a request may not come in, whatever it asks for. It has to name this gateway exactly once, must not come from
 * another site's page, and its body must have the same length for every server along the way.
 */
export function createDoorCheck(
  settings: () => HostSettings,
  entranceOf: (request: IncomingMessage) => Entrance = () => ({ kind: 'own' }),
): (request: IncomingMessage) => Problem | null {
  const isHost = createHostCheck(settings);
  return (request) => {
    const {
      url,
      httpVersion,
      headers,
      socket: { localAddress },
    } = request;
    const { host, origin } = headers;
    // HTTP/1.0 has no chunked coding (RFC 9112, 6.1): a server before this one may have taken the chunks for a request.
    if (httpVersion === '1.0' && headers['transfer-encoding'] !== undefined)
      return plainProblem('invalid_request', 'HTTP/1.0 has no Transfer-Encoding: send Content-Length.');
    const entrance = entranceOf(request);
    const authority = authorityOf(url);
    if (entrance.kind === 'none') return NO_ROUTE_THERE;
    if (entrance.kind === 'routes' && authority !== null) return NO_AUTHORITY;
    const isRoutesHost = entrance.kind === 'routes' && entrance.host !== null;
    if (isRoutesHost) {
      if (origin === undefined || originName(origin) === entrance.host) return null;
    } else if (!isHost(host, localAddress) || (authority !== null && !isHost(authority, localAddress))) {
      if (host === undefined) return plainProblem('invalid_request', 'The request has no Host header.');
      if (host.includes(',')) return plainProblem('invalid_request', 'The request has more than one Host.');
      return plainProblem(
        'host_not_allowed',
        'The Host header does not name this gateway. Add the name to server.allowed_hosts if it should.',
      );
    }
    return origin === undefined || isKnownOrigin(origin, localAddress, settings())
      ? null
      : plainProblem('origin_not_allowed', 'Requests from pages of other origins are refused.');
  };
}

const NO_ROUTE_THERE = plainProblem(
  'host_not_allowed',
  'No route of this listener is under the name in the Host header.',
);
/** A name in the target and another in the header could each mean a different route. */
const NO_AUTHORITY = plainProblem(
  'invalid_request',
  'Send the path alone as the target: the Host header has the name.',
);

/** The host of a target in absolute form (RFC 9112, 3.2.2), which then counts besides the header. */
function authorityOf(url: string | undefined): string | null {
  return /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(url ?? '')?.[1] ?? null;
}

/** {@link isKnownHost} with a memory of known hosts, until the settings change. */
function createHostCheck(
  settings: () => HostSettings,
): (host: string | undefined, localAddress: string | undefined) => boolean {
  const known = new Set<string>();
  let { publicUrl, allowedHosts } = settings();
  return (host, localAddress) => {
    const now = settings();
    if (now.publicUrl !== publicUrl || now.allowedHosts !== allowedHosts) {
      ({ publicUrl, allowedHosts } = now);
      known.clear();
    }
    const asked = `${localAddress ?? ''} ${host ?? ''}`;
    if (known.has(asked)) return true;
    if (!isKnownHost(host, localAddress, now)) return false;
    if (known.size >= MAX_REMEMBERED) known.clear();
    known.add(asked);
    return true;
  };
}

/** The name in an `Origin`; `null` if there is none. */
function originName(origin: string): string | null {
  return /^https?:\/\//i.test(origin) ? hostName(origin.replace(/^https?:\/\//i, '')) : null;
}

/** Whether a browser's `Origin` is a page of this gateway. `null` and texts that cannot be parsed are not. */
function isKnownOrigin(origin: string, localAddress: string | undefined, settings: HostSettings): boolean {
  if (!/^https?:\/\//i.test(origin)) return false;
  return isKnownHost(origin.replace(/^https?:\/\//i, ''), localAddress, settings);
}

/** The value of the constraint `entrance` for handlers that serve requests from outside the gateway's own entrance. */
export const ROUTES_ONLY = 'routes';

const OWN: Entrance = { kind: 'own' };
const NONE: Entrance = { kind: 'none' };

/**
 * Finds out where a request came in, only from its connection and its Host.
 * @param routes those in force; called on each request
 */
export function createEntrances(
  routes: () => readonly Pick<Route, 'listen' | 'host'>[],
): (request: IncomingMessage) => Entrance {
  let of = routes();
  let byPlace = entrancesOf(of);
  return (request) => {
    const now = routes();
    if (now !== of) {
      of = now;
      byPlace = entrancesOf(now);
    }
    const listen = listenerOf(request.socket);
    if (listen === null && byPlace.size === 0) return OWN;
    const { host } = request.headers;
    const name = host === undefined ? null : hostName(host);
    const found = name === null ? undefined : byPlace.get(placeOf({ listen, host: name }));
    if (found !== undefined) return found;
    return listen === null ? OWN : (byPlace.get(placeOf({ listen, host: null })) ?? NONE);
  };
}

function entrancesOf(routes: readonly Pick<Route, 'listen' | 'host'>[]): ReadonlyMap<string, Entrance> {
  const found = new Map<string, Entrance>();
  for (const { listen, host } of routes)
    if (listen !== null || host !== null) found.set(placeOf({ listen, host }), { kind: 'routes', listen, host });
  return found;
}

/**
 * The name in `name:port`, in lower case, without the brackets of IPv6 and without one dot at the end; `null` if it is
 * not one.
 */
export function hostName(host: string): string | null {
  const match = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?$/i.exec(host);
  const [, v6, name] = match ?? [];
  if (v6 !== undefined) return isIPv6(v6) ? v6.toLowerCase() : null;
  return name?.toLowerCase().replace(/\.$/, '') ?? null;
}
