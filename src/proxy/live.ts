import type { Principal } from '../effects/model/principal.ts';
import type { ProxyPorts, ReadCall } from './ports.ts';

/** Something open on behalf of a key: a read that streams, a tunnel. */
export interface LiveConnection {
  readonly key: string;
  readonly address: string;
  /** The call it was let in for; judged again under the key's principal as it is then. */
  readonly call: ReadCall;
  readonly cut: () => void;
}

/** Open streams and tunnels. Each is cut when its key is no longer valid or a pause covers it. */
export interface Live {
  add(connection: LiveConnection): void;
  remove(connection: LiveConnection): void;
  /** Cuts everything. */
  close(): void;
}

/** Keys expire and pauses begin by time as well: how often what is open is looked at, ms. */
const RECHECK_MS = 2000;

export function createLive(ports: Pick<ProxyPorts, 'identify' | 'evaluateRead' | 'onAccessChanged'>): Live {
  const open = new Set<LiveConnection>();
  const check = async (connection: LiveConnection): Promise<void> => {
    const principal = await principalOf(ports, connection);
    if (!open.has(connection)) return;
    const holds = principal !== null && ports.evaluateRead({ ...connection.call, principal }).kind === 'stream';
    if (holds) return;
    open.delete(connection);
    connection.cut();
  };
  const checkAll = (): void => {
    // Whatever cannot be judged is cut: a view of keys that is too old refuses reads as well.
    for (const connection of open) {
      check(connection).catch(() => {
        open.delete(connection);
        connection.cut();
      });
    }
  };
  const unsubscribe = ports.onAccessChanged(checkAll);
  const timer = setInterval(checkAll, RECHECK_MS).unref();
  return {
    add: (connection) => {
      open.add(connection);
    },
    remove: (connection) => {
      open.delete(connection);
    },
    close: () => {
      unsubscribe();
      clearInterval(timer);
      for (const connection of open) connection.cut();
      open.clear();
    },
  };
}

async function principalOf(ports: Pick<ProxyPorts, 'identify'>, connection: LiveConnection): Promise<Principal | null> {
  const who = await ports.identify(connection.key, connection.address);
  return who.kind === 'principal' ? who.principal : null;
}
