import type { IncomingMessage } from 'node:http';
import type { Route } from '../config/configuration.ts';
import { hostName } from './host-name.ts';
import { listenerOf } from './listeners.ts';

/** Where a request came in. Each entrance has its own address space. */
export type Entrance =
  /** The gateway's own name and port: the control plane, and routes by their prefix. */
  | { readonly kind: 'own' }
  /** Routes only. `host` is their name; `null` if every name of the gateway leads to them. */
  | { readonly kind: 'routes'; readonly listen: string | null; readonly host: string | null }
  /** A listener that has no route under that name. */
  | { readonly kind: 'none' };

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
