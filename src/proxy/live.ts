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
  /** Whether it lasts until one side leaves, so that waiting for its end is no use. It may be known late. */
  readonly stands: () => boolean;
  readonly cut: () => void;
}

/**
 * Open streams and tunnels. Each is cut when its key is no longer valid or a pause covers it, and when the gateway
 * stops.
 */
export type Live = ReturnType<typeof createLive>;

/** How often open connections are checked, ms: keys can expire and pauses can begin without any event. */
const RECHECK_MS = 2000;
/** How long reads may go on while the gateway stops, ms. Kubernetes kills a container after 30 s. */
const MOST_READ_MS = 20_000;
/** How often, while it stops, what is open is looked at: a read may only now turn out to be an event stream. */
const STOP_CHECK_MS = 50;

export function createLive(ports: Pick<ProxyPorts, 'identify' | 'evaluateRead' | 'onAccessChanged'>) {
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
  let stopping: NodeJS.Timeout | null = null;
  return {
    add: (connection: LiveConnection): void => {
      open.add(connection);
    },
    remove: (connection: LiveConnection): void => {
      open.delete(connection);
    },
    /**
     * The gateway stops, and waits for every connection. What stands is cut at once, and other reads when they had
     * {@link MOST_READ_MS} to end: they change nothing, and can be made again elsewhere. What was admitted is not cut. It
     * ends, or its own limit of time ends it.
     */
    stop: (): void => {
      const began = performance.now();
      const checkStop = (): void => {
        const isOver = performance.now() - began >= MOST_READ_MS;
        for (const connection of open) {
          if (connection.isAdmitted || !(isOver || connection.stands())) continue;
          open.delete(connection);
          connection.cut();
        }
      };
      stopping ??= setInterval(checkStop, STOP_CHECK_MS).unref();
      checkStop();
    },
    /** Cuts everything. */
    close: (): void => {
      unsubscribe();
      clearInterval(timer);
      if (stopping !== null) clearInterval(stopping);
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
