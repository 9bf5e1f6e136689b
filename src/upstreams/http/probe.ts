import { Client } from 'undici';
import { ConnectFailed, guardedConnector } from './connect.ts';
import type { ConnectionSettings } from './connections.ts';
import { MAY_BE_REFUSED } from './tls-faults.ts';

export type Probed =
  /** `date`: ms since the epoch by the upstream's clock; `null` if it says none. */
  | { readonly kind: 'answered'; readonly status: number; readonly date: number | null }
  | { readonly kind: 'silent'; readonly why: string };

/** Asks an upstream for a sign of life: HEAD without credentials, on a connection like those of calls. */
export async function probeUpstream(settings: ConnectionSettings, timeoutMs: number): Promise<Probed> {
  const { url, network, tls = null } = settings;
  const client = new Client(url, {
    connect: guardedConnector({ network, timeoutMs, tls }, () => {}),
    allowH2: false,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  });
  try {
    const { statusCode, headers, body } = await client.request({ method: 'HEAD', path: '/' });
    await body.dump();
    const date = Date.parse(String(headers['date']));
    return { kind: 'answered', status: statusCode, date: Number.isNaN(date) ? null : date };
  } catch (error) {
    if (error instanceof ConnectFailed) return { kind: 'silent', why: error.message };
    const why = error instanceof Error ? error.message : 'unknown fault';
    return { kind: 'silent', why: url.startsWith('https:') ? `${why}; ${MAY_BE_REFUSED}` : why };
  } finally {
    await client.destroy();
  }
}
