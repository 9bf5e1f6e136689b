import { once } from 'node:events';
import type { Server } from 'node:http';
import { createServer, type AddressInfo, type Server as NetServer, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import type { ListenerSettings, TlsPair } from '../config/configuration.ts';
import type { ConnectionCap } from './connection-cap.ts';

/** A connection that does not start or finish its TLS handshake is closed after this long, ms. */
const HANDSHAKE_MS = 10_000;

/**
 * Several listeners, one server: every connection, at whatever listener, becomes a connection of the one HTTP server.
 * So each of its limits holds for all of them together, and none can be forgotten at one.
 */
export interface Listeners {
  /** Opens a listener; returns its URL. @throws what Node's `listen` emits */
  open(settings: ListenerSettings): Promise<string>;
  /** Switches to other certificates. Open connections keep those that they started with. */
  update(main: TlsPair | null, listeners: readonly ListenerSettings[]): void;
  /** Accepts no more connections. Resolves when the last connection of the listeners has ended. */
  close(): Promise<void>;
}

/** Which listener a socket came in at; sockets of the main listener are not in it. */
const listenerBySocket = new WeakMap<object, string>();

/** The listener at which a connection came in, by its `at`; `null`: the main one. */
export function listenerOf(socket: object): string | null {
  return listenerBySocket.get(socket) ?? null;
}

/**
 * Adds listeners to an HTTP server, and gives its own listener TLS if there is a certificate for it. Call it before
 * anybody else listens to the server's connections.
 * @param cap counts connections, including those in the middle of a handshake
 */
export function createListeners(
  server: Server,
  main: TlsPair | null,
  cap: (server: Server) => ConnectionCap,
): { readonly listeners: Listeners; readonly connections: ConnectionCap } {
  const take = server.listeners('connection');
  const mainTls = main === null ? null : encrypted(main, (socket) => server.emit('connection', socket));
  if (mainTls !== null) server.removeAllListeners('connection');
  const connections = cap(server);
  if (mainTls !== null)
    server.on('connection', (socket: Socket) => {
      // Already encrypted, or from another listener, or read a second time (see proxy/upgrades.ts).
      if ('encrypted' in socket || listenerBySocket.has(socket))
        for (const each of take) Reflect.apply(each, server, [socket]);
      else if (!socket.destroyed) mainTls.begin(socket, connections);
    });
  const open = new Map<string, { readonly net: NetServer; readonly tls: ReturnType<typeof encrypted> | null }>();

  return {
    connections,
    listeners: {
      async open({ at, host, port, tls: pair }) {
        const arrive = (socket: Socket): void => {
          listenerBySocket.set(socket, at);
          server.emit('connection', socket);
        };
        const tls = pair === null ? null : encrypted(pair, arrive);
        const net = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
          if (tls === null) arrive(socket);
          else if (connections.admit(socket)) tls.begin(socket, connections);
        });
        net.listen(port, host);
        await once(net, 'listening');
        open.set(at, { net, tls });
        const bound = net.address() as AddressInfo;
        const name = bound.family === 'IPv6' ? `[${bound.address}]` : bound.address;
        return `${tls === null ? 'http' : 'https'}://${name}:${bound.port}`;
      },
      update(pair, settings) {
        if (pair !== null) mainTls?.use(pair);
        for (const { at, tls } of settings) if (tls !== null) open.get(at)?.tls?.use(tls);
      },
      async close() {
        await Promise.all([...open.values()].map(({ net }) => new Promise((closed) => net.close(closed))));
      },
    },
  };
}

/** TLS on connections that somebody else accepts. @param arrived told of each after its handshake */
function encrypted(pair: TlsPair, arrived: (socket: Socket) => void) {
  /**
   * What to do after the handshake, by the remote end of the connection: Node does not say which connection a TLS
   * socket is on.
   */
  const shaking = new Map<string, (socket: Socket) => void>();
  let current = pair;
  const server = createTlsServer({
    ...pair,
    minVersion: 'TLSv1.2',
    handshakeTimeout: HANDSHAKE_MS,
    allowHalfOpen: true,
  });
  server.on('tlsClientError', (_error, socket) => socket.destroy());
  server.on('secureConnection', (socket) => {
    const shaken = shaking.get(peerOf(socket));
    if (shaken === undefined) socket.destroy();
    else shaken(socket);
  });
  return {
    /** Starts the handshake on a connection. */
    begin(plain: Socket, connections: ConnectionCap): void {
      const peer = peerOf(plain);
      shaking.set(peer, (socket) => {
        shaking.delete(peer);
        connections.replace(plain, socket);
        arrived(socket);
      });
      plain.once('close', () => void shaking.delete(peer));
      server.emit('connection', plain);
    },
    use(next: TlsPair): void {
      if (next.cert === current.cert && next.key === current.key) return;
      server.setSecureContext({ ...next, minVersion: 'TLSv1.2' });
      current = next;
    },
  };
}

function peerOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}
