import type { IncomingMessage } from 'node:http';
import type { Route } from '../config/configuration.ts';
import { hostName } from './host-name.ts';
import { listenerOf } from './listeners.ts';

/** Where a request came in. What is there is another address space at each. */
export type Entrance =
  /** The gateway's own name and port: the control plane, and routes by their prefix. */
  | { readonly kind: 'own' }
  /** Routes alone. `host` is the name that they are under; `null` where every name of the gateway leads to them. */
  | { readonly kind: 'routes'; readonly listen: string | null; readonly host: string | null }
  /** A listener at which no route is under that name. */
  | { readonly kind: 'none' };

/** The value of the constraint `entrance` of handlers that serve what came in elsewhere than at the gateway's own. */
export const ROUTES_ONLY = 'routes';

const OWN: Entrance = { kind: 'own' };
const NONE: Entrance = { kind: 'none' };

/**
 * Tells where a request came in, by its connection and its Host alone.
 * @param routes those in force; asked on each request
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
    const found = name === null ? undefined : byPlace.get(placeOf(listen, name));
    if (found !== undefined) return found;
    return listen === null ? OWN : (byPlace.get(placeOf(listen, null)) ?? NONE);
  };
}

function entrancesOf(routes: readonly Pick<Route, 'listen' | 'host'>[]): ReadonlyMap<string, Entrance> {
  const found = new Map<string, Entrance>();
  for (const { listen, host } of routes)
    if (listen !== null || host !== null) found.set(placeOf(listen, host), { kind: 'routes', listen, host });
  return found;
}

function placeOf(listen: string | null, host: string | null): string {
  return `${listen ?? ''} ${host ?? ''}`;
}
