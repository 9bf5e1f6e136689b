import type { Socket } from 'node:net';
import { Client } from 'undici';
import { guardedConnector } from './connect.ts';

/** One connection to an upstream, which carries one request at a time. */
export interface Connection {
  readonly client: Client;
  /** Whether the socket carries TLS. */
  readonly encrypted: boolean;
  /** The plain socket in use, beneath TLS if there is any; `null` before the first connect. */
  socket: Socket | null;
}

/** The connections of one upstream: at most `connections`, opened as needed, reused last in, first out. */
export interface Connections {
  /** A free connection, or `null` when all are in use. */
  take(): Connection | null;
  /** The next free one; `null` when `wanted` says no or the connections are closed. */
  wait(wanted: () => boolean): Promise<Connection | null>;
  release(connection: Connection): void;
  /** Lets running requests end, then closes. */
  close(): Promise<void>;
}

export interface ConnectionSettings {
  readonly url: string;
  readonly connections: number;
  readonly network: 'any' | 'public';
}

/** A connection that takes longer is given up: by then it would be too late to write, past `dispatch_by`. */
export const CONNECT_TIMEOUT_MS = 3000;

/** How often calls that wait for a connection are asked whether they still want one. */
const WAITING_CHECK_MS = 50;

interface Waiting {
  readonly wanted: () => boolean;
  readonly give: (connection: Connection | null) => void;
}

/** Opens no connection yet. undici closes idle connections after its keep-alive time. */
export function createConnections(settings: ConnectionSettings): Connections {
  const all: Connection[] = [];
  const idle: Connection[] = [];
  const waiting: Waiting[] = [];
  let closed = false;
  let timer: NodeJS.Timeout | null = null;

  const dropUnwanted = (): void => {
    for (let index = waiting.length - 1; index >= 0; index -= 1) {
      const each = waiting[index];
      if (each === undefined || (!closed && each.wanted())) continue;
      waiting.splice(index, 1);
      each.give(null);
    }
    if (waiting.length === 0 && timer !== null) {
      clearInterval(timer);
      timer = null;
    }
  };

  const take = (): Connection | null => {
    if (closed) return null;
    const free = idle.pop();
    if (free !== undefined) return free;
    if (all.length >= settings.connections) return null;
    const connection = openConnection(settings);
    all.push(connection);
    return connection;
  };

  return {
    take,
    wait: (wanted) =>
      new Promise((give) => {
        const free = take();
        if (free !== null || closed) {
          give(free);
          return;
        }
        waiting.push({ wanted, give });
        timer ??= setInterval(dropUnwanted, WAITING_CHECK_MS);
      }),
    release: (connection) => {
      dropUnwanted();
      const next = waiting.shift();
      if (next === undefined) idle.push(connection);
      else next.give(connection);
    },
    close: async () => {
      closed = true;
      dropUnwanted();
      await Promise.all(all.map(({ client }) => client.close()));
    },
  };
}

function openConnection(settings: ConnectionSettings): Connection {
  const connect = guardedConnector({ network: settings.network, timeoutMs: CONNECT_TIMEOUT_MS }, (opened) => {
    connection.socket = opened;
  });
  const client = new Client(settings.url, {
    connect,
    pipelining: 1,
    allowH2: false,
    // Attempts measure their own time, over the whole answer.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  const connection: Connection = { client, encrypted: settings.url.startsWith('https:'), socket: null };
  return connection;
}
