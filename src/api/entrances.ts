import type { IncomingMessage } from 'node:http';
import type { Route } from '../config/configuration.ts';
import { type Entrance, placeOf } from '../config/entrance.ts';
import { hostName } from './host-name.ts';
import { listenerOf } from './listeners.ts';

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
