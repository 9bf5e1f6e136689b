import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer, isIPv6 } from 'node:net';
import type { AddressInfo, Server as NetServer, Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import type { ListenerSettings, Route, TlsPair } from '../config/configuration.ts';
import type { Duplex } from 'node:stream';
import { type Entrance, placeOf } from '../config/entrance.ts';
import type { Problem } from '../effects/model/run-request.ts';
import type { ApiSettings } from './ports.ts';
import { plainProblem } from './problem.ts';

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

/** After the last answer of a connection, the caller has this long to send the next piece or to close its side, ms. */
const LINGER_MS = 1_000;
/** What a caller still sends after the last answer is read and dropped for at most this long, ms. */
const MOST_LINGER_MS = 10_000;

/**
 * Limits the connections of callers to what the process can have open, and removes those that are finished.
 *
 * If there is one too many, the one that was idle for longest is closed. If all others have a running request, the new
 * one is closed. A connection that has got its last answer (to something that is no request, to a refused upgrade, or
 * to a request of which a part was not read) is closed soon, even if its caller does not close it. Not at once: the
 * system would tell a caller that is still sending that the connection broke, and take the answer from it.
 */
export class ConnectionCap {
  /** The number of running requests, for connections that have any. */
  readonly underWay = new Map<Socket, number>();
  readonly #open = new Set<Socket>();
  /** Connections without a running request, the longest idle first. */
  readonly #idle = new Set<Socket>();
  /** Answers that wait behind others of their connection. Node 20 tells only the one that has it when it closes. */
  readonly #behind = new WeakMap<Socket, Set<ServerResponse>>();
  readonly #most: number;
  readonly #mostLingerMs: number;
  #isOver = false;

  constructor(server: Server, most: number, mostLingerMs = MOST_LINGER_MS) {
    this.#most = most;
    this.#mostLingerMs = mostLingerMs;
    server.on('connection', (socket) => this.admit(socket));
    server.on('request', (request: IncomingMessage, response: ServerResponse) => this.begun(request, response));
    // A tunnel counts as a running request until its connection closes.
    server.on('upgrade', ({ socket }: IncomingMessage) => void this.#idle.delete(socket));
  }

  /** Counts a connection. If there are too many, closes this one or another. Returns whether this one may stay. */
  admit(socket: Socket): boolean {
    // A request that is read a second time (see proxy/upgrades.ts) comes on a known connection.
    if (this.#open.has(socket)) return true;
    if (this.#open.size >= this.#most) {
      const [longest] = this.#idle;
      (longest ?? socket).destroy();
      if (longest === undefined) return false;
      this.#idle.delete(longest);
    }
    this.#count(socket);
    return true;
  }

  /** Counts a request until its answer is over. Called for each that the server emits as one. */
  begun({ socket }: IncomingMessage, response: ServerResponse): void {
    this.#idle.delete(socket);
    this.underWay.set(socket, (this.underWay.get(socket) ?? 0) + 1);
    if (response.socket === null) this.#behind.set(socket, (this.#behind.get(socket) ?? new Set()).add(response));
    response.once('close', () => {
      this.#behind.get(socket)?.delete(response);
      const left = (this.underWay.get(socket) ?? 1) - 1;
      if (left > 0) this.underWay.set(socket, left);
      else {
        this.underWay.delete(socket);
        if (this.#isOver) socket.destroySoon();
        else if (this.#open.has(socket)) this.#idle.add(socket);
      }
    });
  }

  /** From now on the connection uses the other socket, which encrypts it. */
  replace(plain: Socket, encrypted: Socket): void {
    this.#open.delete(plain);
    this.#idle.delete(plain);
    this.#count(encrypted);
  }

  /**
   * Called when the server closes. It waits for every connection, and Node no longer ends those without a request: a
   * silent one would keep it open for ever. So silent ones are closed at once, and those in the middle of a request's
   * head a second later.
   */
  close(): void {
    for (const socket of this.#idle) if (socket.bytesRead === 0) socket.destroy();
    setTimeout(() => {
      this.#isOver = true;
      for (const socket of this.#idle) socket.destroy();
    }, LINGER_MS).unref();
  }

  #count(socket: Socket): void {
    this.#open.add(socket);
    this.#idle.add(socket);
    // Node calls this after the last answer.
    socket.destroySoon = () => {
      dropTheRest(socket);
      socket.end();
    };
    socket.once('finish', () => {
      socket.resume();
      socket.setTimeout(LINGER_MS, () => socket.destroy());
      setTimeout(() => socket.destroy(), this.#mostLingerMs).unref();
    });
    socket.once('close', () => {
      // Later, as Node 24 closes them by itself in the ticks that follow: what is still here then, it did not close.
      setImmediate(() => {
        for (const response of this.#behind.get(socket) ?? []) {
          response.destroy();
          response.emit('close');
        }
      });
      this.#open.delete(socket);
      this.#idle.delete(socket);
      this.underWay.delete(socket);
    });
  }
}

/**
 * From now on what arrives on the connection is dropped, and no longer read as requests: a call that arrives after the
 * last answer would run although nobody can be told.
 */
export function dropTheRest(socket: Duplex): void {
  // Our first listener makes Node's parser let go of the socket; from then on the parser's own is an ordinary listener.
  socket.on('data', () => {});
  socket.removeAllListeners('data');
  socket.on('data', () => {});
}

type HostSettings = Pick<ApiSettings, 'publicUrl' | 'allowedHosts'>;

const LOOPBACK = ['127.0.0.1', '::1', 'localhost'] as const;

/**
 * Whether a `Host` header names this gateway: the address that the connection came in on, the host of `public_url`, a
 * configured name, and on loopback any loopback name. Ports are ignored. Protects against DNS rebinding.
 * @param localAddress of the socket; `undefined` if there is none
 */
function isKnownHost(host: string | undefined, localAddress: string | undefined, settings: HostSettings): boolean {
  const name = host === undefined ? null : hostName(host);
  if (name === null) return false;
  const bound = localAddress?.replace(/^::ffff:/, '').toLowerCase();
  if (name === bound) return true;
  const published = hostName(settings.publicUrl.replace(/^https?:\/\//i, '').replace(/\/.*$/, ''));
  if (name === published) return true;
  if (settings.allowedHosts.some((allowed) => allowed.toLowerCase() === name)) return true;
  const onLoopback = [bound, published].some((address) => LOOPBACK.some((loopback) => loopback === address));
  return onLoopback && LOOPBACK.some((loopback) => loopback === name);
}

/** How many known hosts are remembered. Limited, because a client may add any port to a name. */
const MAX_REMEMBERED = 100;

/**
 * Why a request may not come in, whatever it asks for. It has to name this gateway exactly once, must not come from
 * another site's page, and its body must have the same length for every server along the way.
 */
export function createDoorCheck(
  settings: () => HostSettings,
  entranceOf: (request: IncomingMessage) => Entrance = () => ({ kind: 'own' }),
): (request: IncomingMessage) => Problem | null {
  const isHost = createHostCheck(settings);
  return (request) => {
    const {
      url,
      httpVersion,
      headers,
      socket: { localAddress },
    } = request;
    const { host, origin } = headers;
    // HTTP/1.0 has no chunked coding (RFC 9112, 6.1): a server before this one may have taken the chunks for a request.
    if (httpVersion === '1.0' && headers['transfer-encoding'] !== undefined)
      return plainProblem('invalid_request', 'HTTP/1.0 has no Transfer-Encoding: send Content-Length.');
    const entrance = entranceOf(request);
    const authority = authorityOf(url);
    if (entrance.kind === 'none') return NO_ROUTE_THERE;
    if (entrance.kind === 'routes' && authority !== null) return NO_AUTHORITY;
    const isRoutesHost = entrance.kind === 'routes' && entrance.host !== null;
    if (isRoutesHost) {
      if (origin === undefined || originName(origin) === entrance.host) return null;
    } else if (!isHost(host, localAddress) || (authority !== null && !isHost(authority, localAddress))) {
      if (host === undefined) return plainProblem('invalid_request', 'The request has no Host header.');
      if (host.includes(',')) return plainProblem('invalid_request', 'The request has more than one Host.');
      return plainProblem(
        'host_not_allowed',
        'The Host header does not name this gateway. Add the name to server.allowed_hosts if it should.',
      );
    }
    return origin === undefined || isKnownOrigin(origin, localAddress, settings())
      ? null
      : plainProblem('origin_not_allowed', 'Requests from pages of other origins are refused.');
  };
}

const NO_ROUTE_THERE = plainProblem(
  'host_not_allowed',
  'No route of this listener is under the name in the Host header.',
);
/** A name in the target and another in the header could each mean a different route. */
const NO_AUTHORITY = plainProblem(
  'invalid_request',
  'Send the path alone as the target: the Host header has the name.',
);

/** The host of a target in absolute form (RFC 9112, 3.2.2), which then counts besides the header. */
function authorityOf(url: string | undefined): string | null {
  return /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(url ?? '')?.[1] ?? null;
}

/** {@link isKnownHost} with a memory of known hosts, until the settings change. */
function createHostCheck(
  settings: () => HostSettings,
): (host: string | undefined, localAddress: string | undefined) => boolean {
  const known = new Set<string>();
  let { publicUrl, allowedHosts } = settings();
  return (host, localAddress) => {
    const now = settings();
    if (now.publicUrl !== publicUrl || now.allowedHosts !== allowedHosts) {
      ({ publicUrl, allowedHosts } = now);
      known.clear();
    }
    const asked = `${localAddress ?? ''} ${host ?? ''}`;
    if (known.has(asked)) return true;
    if (!isKnownHost(host, localAddress, now)) return false;
    if (known.size >= MAX_REMEMBERED) known.clear();
    known.add(asked);
    return true;
  };
}

/** The name in an `Origin`; `null` if there is none. */
function originName(origin: string): string | null {
  return /^https?:\/\//i.test(origin) ? hostName(origin.replace(/^https?:\/\//i, '')) : null;
}

/** Whether a browser's `Origin` is a page of this gateway. `null` and texts that cannot be parsed are not. */
function isKnownOrigin(origin: string, localAddress: string | undefined, settings: HostSettings): boolean {
  if (!/^https?:\/\//i.test(origin)) return false;
  return isKnownHost(origin.replace(/^https?:\/\//i, ''), localAddress, settings);
}

/** The value of the constraint `entrance` for handlers that serve requests from outside the gateway's own entrance. */
export const ROUTES_ONLY = 'routes';

const OWN: Entrance = { kind: 'own' };
const NONE: Entrance = { kind: 'none' };

/**
 * Finds out where a request came in, only from its connection and its Host.
 * @param routes those in force; called on each request
 */
export function createEntrances(
  routes: () => readonly Pick<Route, 'listen' | 'host'>[],
): (request: IncomingMessage) => Entrance {
  let of = routes();
  let byPlace = entrancesOf(of);
  return (request) => {
    const now = routes();
    if (now !== of) {
      of = now;
      byPlace = entrancesOf(now);
    }
    const listen = listenerOf(request.socket);
    if (listen === null && byPlace.size === 0) return OWN;
    const { host } = request.headers;
    const name = host === undefined ? null : hostName(host);
    const found = name === null ? undefined : byPlace.get(placeOf({ listen, host: name }));
    if (found !== undefined) return found;
    return listen === null ? OWN : (byPlace.get(placeOf({ listen, host: null })) ?? NONE);
  };
}

function entrancesOf(routes: readonly Pick<Route, 'listen' | 'host'>[]): ReadonlyMap<string, Entrance> {
  const found = new Map<string, Entrance>();
  for (const { listen, host } of routes)
    if (listen !== null || host !== null) found.set(placeOf({ listen, host }), { kind: 'routes', listen, host });
  return found;
}

/**
 * The name in `name:port`, in lower case, without the brackets of IPv6 and without one dot at the end; `null` if it is
 * not one.
 */
export function hostName(host: string): string | null {
  const match = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?$/i.exec(host);
  const [, v6, name] = match ?? [];
  if (v6 !== undefined) return isIPv6(v6) ? v6.toLowerCase() : null;
  return name?.toLowerCase().replace(/\.$/, '') ?? null;
}
