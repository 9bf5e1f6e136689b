import type { Socket } from 'node:net';
import { Client } from 'undici';
import { guardedConnector } from './connect.ts';
import type { UpstreamTls } from '../../effects/upstream.ts';

/** One connection to an upstream, which carries one request at a time. */
export interface Connection {
  readonly client: Client;
  readonly encrypted: boolean;
  /** The plain socket in use, beneath TLS if there is any; `null` before the first connect. */
  socket: Socket | null;
  hasAnswered: boolean;
}

/** The connections of one upstream: at most `connections`, opened as needed, reused last in, first out. */
export interface Connections {
  /** A free connection, or `null` when all are in use. */
  take(): Connection | null;
  /** The next free one; `null` when `wanted` says no or the connections are closed. */
  wait(wanted: () => boolean): Promise<Connection | null>;
  release(connection: Connection): void;
  /**
   * Switches to other keys and certificates. Running requests end on their connections; later ones, and those that wait,
   * get new ones.
   */
  secure(tls: UpstreamTls | null): void;
  /** Lets running requests end, then closes. */
  close(): Promise<void>;
}

export interface ConnectionSettings {
  readonly url: string;
  readonly connections: number;
  readonly network: 'any' | 'public';
  /** Absent, or `null`, if nothing is configured. */
  readonly tls?: UpstreamTls | null;
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
export function createConnections(configured: ConnectionSettings): Connections {
  let settings = configured;
  const all = new Set<Connection>();
  /** In use, and opened with earlier keys and certificates. */
  const outdated = new Set<Connection>();
  const closing = new Set<Promise<void>>();
  const idle: Connection[] = [];
  const waiting: Waiting[] = [];
  let closed = false;
  let timer: NodeJS.Timeout | null = null;

  const dropUnwanted = (): void => {
    removeUnwanted(waiting, closed);
    if (waiting.length === 0 && timer !== null) {
      clearInterval(timer);
      timer = null;
    }
  };

  const retire = (connection: Connection): void => {
    all.delete(connection);
    outdated.delete(connection);
    const done = connection.client.close().finally(() => closing.delete(done));
    closing.add(done);
  };

  const take = (): Connection | null => {
    if (closed) return null;
    const free = idle.pop();
    if (free !== undefined) return free;
    return all.size >= settings.connections ? null : openConnection(settings, all);
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
      if (waiting.length > 0) dropUnwanted();
      const isOutdated = outdated.has(connection);
      if (isOutdated) retire(connection);
      const next = waiting.shift();
      if (next !== undefined) next.give(isOutdated ? openConnection(settings, all) : connection);
      else if (!isOutdated) idle.push(connection);
    },
    secure: (tls) => {
      settings = { ...settings, tls };
      for (const connection of idle.splice(0)) retire(connection);
      for (const connection of all) outdated.add(connection);
    },
    close: async () => {
      closed = true;
      dropUnwanted();
      // None is outdated any more: each is closed here.
      outdated.clear();
      for (const connection of all) retire(connection);
      await Promise.all(closing);
    },
  };
}

/** @param closed nobody gets a connection any more */
function removeUnwanted(waiting: Waiting[], closed: boolean): void {
  for (let index = waiting.length - 1; index >= 0; index -= 1) {
    const each = waiting[index];
    if (each === undefined || (!closed && each.wanted())) continue;
    waiting.splice(index, 1);
    each.give(null);
  }
}

/** @param all takes the connection */
function openConnection(settings: ConnectionSettings, all: Set<Connection>): Connection {
  const { network, tls = null } = settings;
  const connect = guardedConnector({ network, timeoutMs: CONNECT_TIMEOUT_MS, tls }, (opened) => {
    connection.socket = opened;
    connection.hasAnswered = false;
  });
  const client = new Client(settings.url, {
    connect,
    pipelining: 1,
    allowH2: false,
    // Attempts measure their own time, over the whole answer.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  const connection: Connection = {
    client,
    encrypted: settings.url.startsWith('https:'),
    socket: null,
    hasAnswered: false,
  };
  all.add(connection);
  return connection;
}
