import type { DeniedDecision } from '../effects/model/decision.ts';
import type { Principal } from '../effects/model/principal.ts';
import type { ProxyPorts, ReadCall, ReadVerdict } from './ports.ts';

/** Something that is open on behalf of a key: a streamed read, the streamed answer to a write, or a tunnel. */
export interface LiveConnection {
  readonly key: string;
  readonly address: string;
  /** The call for which it was opened. It is judged again with the current principal of the key. */
  readonly call: ReadCall;
  /** The core has admitted it. What policy says of it later does not count, but pauses and what its key may do. */
  readonly isAdmitted: boolean;
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
    if (principal !== null && mayGoOn(ports.evaluateRead({ ...connection.call, principal }), connection)) return;
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

const ENDS_ADMITTED: readonly DeniedDecision[] = ['denied_permission', 'denied_identity', 'denied_paused'];

function mayGoOn(verdict: ReadVerdict, { isAdmitted }: LiveConnection): boolean {
  if (!isAdmitted || verdict.kind !== 'govern') return verdict.kind === 'stream';
  const decision = verdict.denied?.decision ?? null;
  return decision === null || !ENDS_ADMITTED.includes(decision);
}

async function principalOf(ports: Pick<ProxyPorts, 'identify'>, connection: LiveConnection): Promise<Principal | null> {
  const who = await ports.identify(connection.key, connection.address);
  return who.kind === 'principal' ? who.principal : null;
}
