import { Pool } from 'undici';
import { guardedConnector } from './connect.ts';
import { CONNECT_TIMEOUT_MS, type ConnectionSettings } from './connections.ts';

/**
 * A pool for reads whose answers are streamed. It repeats nothing, follows no redirect, and connects only to addresses
 * where an upstream may be. Governed calls use other connections, because a stream could keep them waiting.
 */
export function createStream(settings: ConnectionSettings & { readonly timeoutMs: number }): Pool {
  return new Pool(settings.url, {
    connect: guardedConnector(
      { network: settings.network, timeoutMs: CONNECT_TIMEOUT_MS, tls: settings.tls ?? null },
      () => {},
    ),
    connections: settings.connections,
    pipelining: 1,
    allowH2: false,
    // The limit also holds between later bytes: a stream may take long, but must not hang.
    headersTimeout: settings.timeoutMs,
    bodyTimeout: settings.timeoutMs,
  });
}
