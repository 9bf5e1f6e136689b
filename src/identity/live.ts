import type { Principal } from '../effects/model/principal.ts';
import type { Identified } from './identified.ts';

/** Something that is open on behalf of a key: a streamed read, the streamed answer to a write, a tunnel, a stream of MCP. */
export interface LiveConnection {
  readonly key: string;
  readonly address: string;
  /** Whether the current principal of the key may still have it. */
  readonly mayStay: (principal: Principal) => boolean;
  /** The core has admitted it: a gateway that stops waits for its end. */
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

export function createLive(ports: {
  readonly identify: (key: string, address: string) => Identified | Promise<Identified>;
  /** Calls the listener whenever keys or pauses may have changed. Returns a function that stops it. */
  readonly onAccessChanged: (listener: () => void) => () => void;
}) {
  const open = new Set<LiveConnection>();
  const check = async (connection: LiveConnection): Promise<void> => {
    const who = await ports.identify(connection.key, connection.address);
    if (!open.has(connection) || (who.kind === 'principal' && connection.mayStay(who.principal))) return;
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
