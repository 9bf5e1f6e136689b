import type { Socket } from 'node:net';
import { Client } from 'undici';
import { ConnectFailed, guardedConnector } from './connect.ts';
import { CONNECT_TIMEOUT_MS } from './connections.ts';

/** Of an answer nothing is read but its head; what follows is taken up to here, bytes, and the connection is closed. */
const MOST_ANSWER = 16 * 1024;

export interface Posted {
  readonly status: number;
  /** `Retry-After` in seconds, ms; 0: none. */
  readonly retryAfterMs: number;
}

/**
 * Posts once, on a connection of its own, to an address that the operator named. No redirect is followed. The rules
 * about addresses are those of upstreams.
 * @throws ConnectFailed, or what came of the request
 */
export async function postOnce(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: string,
  { network, timeoutMs }: { readonly network: 'any' | 'public'; readonly timeoutMs: number },
): Promise<Posted> {
  const { origin, pathname, search } = new URL(url);
  const connect = guardedConnector({ network, timeoutMs: CONNECT_TIMEOUT_MS, tls: null }, () => undefined);
  const client = new Client(origin, { connect, pipelining: 1, allowH2: false, maxHeaderSize: MOST_ANSWER });
  try {
    const signal = AbortSignal.timeout(timeoutMs);
    const answer = await client.request({ method: 'POST', path: `${pathname}${search}`, headers, body, signal });
    // What it says further changes nothing.
    await answer.body.dump({ limit: MOST_ANSWER, signal }).catch(() => undefined);
    const after = answer.headers['retry-after'];
    const seconds = typeof after === 'string' && /^\d{1,6}$/.test(after) ? Number(after) : 0;
    return { status: answer.statusCode, retryAfterMs: seconds * 1000 };
  } finally {
    await client.destroy();
  }
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
