import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Identified } from '../identity/identified.ts';
import type { ProxyPorts } from './ports.ts';

/** Who sends requests. A key that was just verified on a connection is not verified again for a short time. */
export interface Identities {
  /** Returns a promise only if the key is not in the cache. */
  of(request: IncomingMessage, key: string, address: string): Identified | Promise<Identified>;
  close(): void;
}

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
export function createIdentities(ports: Pick<ProxyPorts, 'identify' | 'onAccessChanged'>): Identities {
  const remembered = new WeakMap<Socket, Remembered>();
  let change = 0;
  const unsubscribe = ports.onAccessChanged(() => {
    change += 1;
  });
  return {
    of: (request, key, address) => {
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
