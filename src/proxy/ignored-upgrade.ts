import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';

/**
 * Node keeps at most this many header names and values of a request. The rest, which it drops, may have been the
 * framing.
 */
const MAX_RAW_HEADERS = 2000;

/** Headers that ask for another protocol (RFC 9110, 7.8; h2c: RFC 7540, 3.2). */
const OF_UPGRADES: ReadonlySet<string> = new Set(['upgrade', 'http2-settings']);

/**
 * Serves a request that asks for a protocol that the gateway does not speak, as if it had not asked; RFC 9110 lets a
 * server do so. (Java's client asks for `h2c` by default.) The request goes back to the server, which reads it from the
 * connection again. Its body and the requests after it are read as usual.
 * @param head what came after the headers
 * @returns whether it could be handed back; if not, nothing was done
 */
export function serveWithoutUpgrade(server: Server, request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
  const { rawHeaders } = request;
  if (rawHeaders.length >= MAX_RAW_HEADERS) return false;
  const lines = [`${request.method} ${request.url} HTTP/${request.httpVersion}`];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? '';
    const value = rawHeaders[i + 1] ?? '';
    if (OF_UPGRADES.has(name.toLowerCase())) continue;
    lines.push(`${name}: ${name.toLowerCase() === 'connection' ? withoutUpgrade(value) : value}`);
  }
  lines.push('', '');
  server.emit('connection', socket);
  socket.unshift(Buffer.concat([Buffer.from(lines.join('\r\n'), 'latin1'), head]));
  return true;
}

/** Whether the answer to an earlier request of the connection is not finished. */
export function isAnswering(socket: Duplex): boolean {
  return '_httpMessage' in socket && Boolean(socket._httpMessage);
}

function withoutUpgrade(connection: string): string {
  return connection
    .split(',')
    .map((option) => option.trim())
    .filter((option) => !OF_UPGRADES.has(option.toLowerCase()))
    .join(', ');
}
