import type { Route } from './configuration.ts';

/** Where a request came in. Each entrance has its own address space. */
export type Entrance =
  /** The gateway's own name and port: the control plane, and routes by their prefix. */
  | { readonly kind: 'own' }
  /** Routes only. `host` is their name; `null` if every name of the gateway leads to them. */
  | { readonly kind: 'routes'; readonly listen: string | null; readonly host: string | null }
  /** A listener that has no route under that name. */
  | { readonly kind: 'none' };

/** Names the listener and the host at which a route is, so that routes can be looked up by them. */
export function placeOf({ listen, host }: Pick<Route, 'listen' | 'host'>): string {
  return `${listen ?? ''} ${host ?? ''}`;
}
