import type { Principal } from '../effects/model/principal.ts';
import type { ProxyPorts, ReadCall } from './ports.ts';

/** Something that is open on behalf of a key: a streamed read or a tunnel. */
export interface LiveConnection {
  readonly key: string;
  readonly address: string;
  /** The call for which it was opened. It is judged again with the current principal of the key. */
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

/** How often open connections are checked, ms: keys can expire and pauses can begin without any event. */
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
    // What cannot be judged is cut. A view of keys that is too old refuses reads as well.
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
