import ipaddr from 'ipaddr.js';
import { lookup as resolve, type LookupAddress, type LookupOptions } from 'node:dns';
import { connect as connectSocket, isIP, type Socket } from 'node:net';
import { buildConnector } from 'undici';
import type { UpstreamTls } from '../../effects/upstream.ts';
import { handshakeFault } from './tls-faults.ts';
import { contextOf } from './upstream-tls.ts';

/** A connection was refused or failed: no byte of a request was written. */
export class ConnectFailed extends Error {
  override readonly name = 'ConnectFailed';
}

export interface ConnectorOptions {
  readonly network: 'any' | 'public';
  readonly timeoutMs: number;
  /** `null`: TLS as Node does it by default, from version 1.2 on. */
  readonly tls: UpstreamTls | null;
}

/**
 * A connector for undici that connects only to addresses where an upstream may be. The address is judged three times:
 * an IP literal before anything is sent, the addresses of a name when it is resolved, and the peer of the connected
 * socket. Only the last check is decisive. TLS starts after it. No proxy is used, whatever the environment says.
 * @param opened told of each plain socket once it is connected
 */
export function guardedConnector(
  options: ConnectorOptions,
  opened: (socket: Socket) => void,
): buildConnector.connector {
  const handshake = handshakes(options);
  return (target, callback) => {
    const hostname = target.hostname.replace(/^\[(.*)\]$/, '$1');
    const literal = isIP(hostname) === 0 ? null : refusedAddress(hostname, options.network);
    if (literal !== null) {
      callback(new ConnectFailed(`the upstream's address is refused: ${literal}`), null);
      return;
    }
    let answered = false;
    const answer = (error: Error | null): void => {
      if (answered) return;
      answered = true;
      clearTimeout(timer);
      if (error !== null) {
        socket.destroy();
        callback(error instanceof ConnectFailed ? error : new ConnectFailed(reasonOf(error), { cause: error }), null);
      } else if (target.protocol === 'https:') {
        opened(socket);
        handshake({ ...target, hostname, httpSocket: socket }, callback);
      } else {
        opened(socket);
        callback(null, socket);
      }
    };
    const socket = connectSocket({
      host: hostname,
      port: Number(target.port) || (target.protocol === 'https:' ? 443 : 80),
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: 60_000,
      lookup: guardedLookup(options.network),
    });
    const timer = setTimeout(
      () => answer(new ConnectFailed(`no connection within ${options.timeoutMs} ms`)),
      options.timeoutMs,
    );
    socket.once('connect', () => {
      const peer = refusedAddress(socket.remoteAddress ?? '', options.network);
      answer(peer === null ? null : new ConnectFailed(`the upstream's address is refused: ${peer}`));
    });
    // This listener stays: a socket that fails later, while TLS starts, must not end the process.
    socket.on('error', (error) => answer(error));
  };
}

/** Starts TLS on a connected socket. The upstream's certificate is verified, whatever the environment says. */
function handshakes({ timeoutMs, tls }: ConnectorOptions): buildConnector.connector {
  let secure: buildConnector.connector | null = null;
  return (target, callback) => {
    const failed = (error: unknown): void => {
      const fault = error instanceof Error ? error : new Error('unknown');
      callback(new ConnectFailed(handshakeFault(fault), { cause: fault }), null);
    };
    try {
      // Certificates are parsed at the first connection that needs them.
      secure ??= buildConnector({
        timeout: timeoutMs,
        allowH2: false,
        // Said here, so that NODE_TLS_REJECT_UNAUTHORIZED=0 has no effect on calls.
        rejectUnauthorized: true,
        ...(tls === null ? { minVersion: 'TLSv1.2' } : { secureContext: contextOf(tls) }),
      });
    } catch (error) {
      target.httpSocket?.destroy();
      failed(error);
      return;
    }
    // Never the name in the Host header of a request, which undici would use.
    const servername = tls?.serverName ?? (isIP(target.hostname) === 0 ? target.hostname : '');
    secure({ ...target, host: target.hostname, servername }, (...result) => {
      const [error, socket] = result;
      if (error !== null) failed(error);
      else callback(null, socket);
    });
  };
}

type LookupCallback = (error: NodeJS.ErrnoException | null, address: string | LookupAddress[], family?: number) => void;

/** Resolves a name to its allowed addresses; fails if there are none. */
function guardedLookup(network: 'any' | 'public') {
  return (hostname: string, options: LookupOptions, callback: LookupCallback): void => {
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) {
        callback(error, []);
        return;
      }
      const allowed = addresses.filter(({ address }) => refusedAddress(address, network) === null);
      const [first] = allowed;
      if (first === undefined) callback(new ConnectFailed('every address of the upstream is refused'), []);
      else if (options.all === true) callback(null, allowed);
      else callback(null, first.address, first.family);
    });
  };
}

/** What went wrong, without addresses, because the answer may show it. */
function reasonOf(error: Error): string {
  const code = 'code' in error && typeof error.code === 'string' ? error.code : null;
  switch (code) {
    case 'ECONNREFUSED':
      return 'the upstream refuses connections';
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return "the upstream's name does not resolve";
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return 'the upstream cannot be reached from here';
    case null:
      return 'the connection did not come about';
    default:
      return `the connection did not come about (${code})`;
  }
}

type Address = ReturnType<typeof ipaddr.parse>;

/** Addresses at which clouds hand out credentials. */
const METADATA = ['fd00:ec2::254', 'fd20:ce::254', '100.100.100.200', '192.0.0.192'].map((text) => ipaddr.parse(text));

/** Never an upstream, whatever the configuration says. */
const NEVER: ReadonlySet<string> = new Set(['unspecified', 'linkLocal', 'multicast', 'broadcast']);

/**
 * Why a connection to an address is refused; `null` if it is allowed. Every address that the text stands for is judged:
 * the whole, and any IPv4 address inside IPv6 (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP).
 * @param network `any` allows loopback and private addresses, `public` only public ones
 */
export function refusedAddress(address: string, network: 'any' | 'public'): string | null {
  const text = address.replace(/%.*$/, '').replace(/^\[(.*)\]$/, '$1');
  if (isIP(text) === 0) return 'it is not an IP address';
  for (const each of meanings(ipaddr.parse(text))) {
    const range = each.range();
    if (NEVER.has(range)) return `it is a ${range} address`;
    if (METADATA.some((metadata) => metadata.toNormalizedString() === each.toNormalizedString())) {
      return 'it is a metadata address';
    }
    if (network === 'public' && range !== 'unicast' && !CARRIERS.has(range)) return `it is a ${range} address`;
  }
  return null;
}

/** IPv6 forms that contain an IPv4 address, which is judged too. */
const CARRIERS: ReadonlySet<string> = new Set(['ipv4Mapped', 'rfc6145', 'rfc6052', '6to4', 'teredo']);

/** The address itself, and the IPv4 addresses inside it. */
function meanings(address: Address): readonly Address[] {
  if (address.kind() === 'ipv4') return [address];
  const bytes = address.toByteArray();
  const range = address.range();
  const found: Address[] = [address];
  const tail = bytes.slice(12);
  if (range === 'ipv4Mapped' || range === 'rfc6145' || range === 'rfc6052') found.push(ipv4(tail));
  // NAT64 for local use (RFC 8215) leaves the prefix length open; RFC 6052 derives the places of the four bytes from it
  // and leaves out byte 8.
  if (startsWith(bytes, [0x00, 0x64, 0xff, 0x9b, 0x00, 0x01])) {
    for (const from of [6, 7, 8]) found.push(ipv4([...bytes.slice(from, 8), ...bytes.slice(9, from + 5)]));
  }
  // IPv4-compatible (RFC 4291); `::` and `::1` are judged as what they are.
  if (bytes.slice(0, 12).every((byte) => byte === 0) && (bytes[12] ?? 0) !== 0) found.push(ipv4(tail));
  if (range === '6to4') found.push(ipv4(bytes.slice(2, 6)));
  if (range === 'teredo') found.push(ipv4(bytes.slice(4, 8)), ipv4(tail.map((byte) => byte ^ 0xff)));
  // ISATAP: …:0:5efe:a.b.c.d and …:200:5efe:a.b.c.d
  if (bytes[9] === 0 && bytes[10] === 0x5e && bytes[11] === 0xfe) found.push(ipv4(tail));
  return found;
}

function ipv4(bytes: readonly number[]): Address {
  return ipaddr.fromByteArray([...bytes]);
}

function startsWith(bytes: readonly number[], prefix: readonly number[]): boolean {
  return prefix.every((byte, index) => bytes[index] === byte);
}
