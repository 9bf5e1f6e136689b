import type { Socket } from 'node:net';
import { Client, type Dispatcher } from 'undici';
import { ANNOUNCED_TOO_OFTEN, MOST_ANNOUNCEMENTS } from './announcements.ts';
import { ConnectFailed, guardedConnector } from './connect.ts';
import { CONNECT_TIMEOUT_MS } from './connections.ts';

const MOST_HEAD = 16 * 1024;
/** Of an answer of which only the head matters, what follows is taken up to here, bytes, and the connection is closed. */
const MOST_UNREAD = 16 * 1024;

export interface OneRequest {
  readonly method: 'GET' | 'POST' | 'PUT';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly network: 'any' | 'public';
  readonly timeoutMs: number;
}

/**
 * Sends one request, on a connection of its own, to an address that the operator named. No redirect is followed. The
 * rules about addresses are those of upstreams.
 * @throws ConnectFailed, or what came of the request
 */
async function requestOnce<T>(
  { method, url, headers, body, network, timeoutMs }: OneRequest,
  read: (answer: Dispatcher.ResponseData, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { origin, pathname, search } = new URL(url);
  const connect = guardedConnector({ network, timeoutMs: CONNECT_TIMEOUT_MS, tls: null }, () => undefined);
  const client = new Client(origin, { connect, pipelining: 1, allowH2: false, maxHeaderSize: MOST_HEAD });
  // Not `AbortSignal.any` with `AbortSignal.timeout`: Node 20 collects the time as garbage, and it never comes.
  const ending = new AbortController();
  const timer = setTimeout(() => ending.abort(new DOMException('its timeout is over', 'TimeoutError')), timeoutMs);
  try {
    let announced = 0;
    const onInfo = (): void => {
      if ((announced += 1) > MOST_ANNOUNCEMENTS) ending.abort(new Error(ANNOUNCED_TOO_OFTEN));
    };
    const request = { method, path: `${pathname}${search}`, headers, body, signal: ending.signal, onInfo };
    return await read(await client.request(request), ending.signal);
  } finally {
    clearTimeout(timer);
    await client.destroy();
  }
}

/** {@link requestOnce}, of which only the head of the answer matters. */
export function postOnce(request: OneRequest): Promise<{
  readonly status: number;
  /** `Retry-After` in seconds, ms; 0: none. */
  readonly retryAfterMs: number;
}> {
  return requestOnce(request, async (answer, signal) => {
    // What it says further changes nothing.
    await answer.body.dump({ limit: MOST_UNREAD, signal }).catch(() => undefined);
    const after = answer.headers['retry-after'];
    const seconds = typeof after === 'string' && /^\d{1,6}$/.test(after) ? Number(after) : 0;
    return { status: answer.statusCode, retryAfterMs: seconds * 1000 };
  });
}

/** {@link requestOnce}, with the answer as a whole. @throws where it has more bytes than these */
export function readOnce(
  request: OneRequest,
  mostBytes: number,
): Promise<{ readonly status: number; readonly body: Buffer }> {
  return requestOnce(request, async ({ statusCode, body }) => {
    const pieces: Buffer[] = [];
    let length = 0;
    for await (const piece of body) {
      if (!Buffer.isBuffer(piece)) throw new TypeError('a body comes as bytes');
      length += piece.length;
      if (length > mostBytes) throw new Error(`the answer has more than ${mostBytes} bytes`);
      pieces.push(piece);
    }
    return { status: statusCode, body: Buffer.concat(pieces) };
  });
}

/** A plain connection to a server that the operator named, under the rules about addresses. @throws ConnectFailed */
export function connectTo(host: string, port: number, network: 'any' | 'public'): Promise<Socket> {
  const connect = guardedConnector({ network, timeoutMs: CONNECT_TIMEOUT_MS, tls: null }, () => undefined);
  return new Promise((resolve, reject) => {
    connect({ hostname: host, host, port: String(port), protocol: 'http:' }, (error, socket) => {
      if (error === null) resolve(socket);
      else reject(error instanceof ConnectFailed ? error : new ConnectFailed('no connection', { cause: error }));
    });
  });
}
