import { Pool } from 'undici';
import { guardedConnector } from './connect.ts';
import { CONNECT_TIMEOUT_MS, type ConnectionSettings } from './connections.ts';

/**
 * A pool for reads that stream through. It repeats nothing, follows nothing, and connects only where an upstream may
 * be; its connections are not those of governed calls, which it could otherwise keep waiting.
 */
export function createStream(settings: ConnectionSettings & { readonly timeoutMs: number }): Pool {
  return new Pool(settings.url, {
    connect: guardedConnector({ network: settings.network, timeoutMs: CONNECT_TIMEOUT_MS }, () => {}),
    connections: settings.connections,
    pipelining: 1,
    allowH2: false,
    // Of the bytes that follow as well: a stream may last, but not hang.
    headersTimeout: settings.timeoutMs,
    bodyTimeout: settings.timeoutMs,
  });
}
