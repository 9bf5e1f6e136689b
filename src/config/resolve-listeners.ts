import type { FileReading } from '../diagnostics/file-reading.ts';
import type { ListenerSettings } from './configuration.ts';
import { at, type Judge } from './judge.ts';
import { resolveTlsPair } from './resolve-tls.ts';
import type { GatewayFile } from './schema.ts';

/** The listeners that routes open, without repeats. */
export async function resolveListeners(
  file: GatewayFile,
  judge: Judge,
  reading: FileReading,
): Promise<readonly ListenerSettings[]> {
  const found = new Map<string, { readonly tls: string | null; readonly settings: ListenerSettings }>();
  for (const route of file.routes) {
    const { listen, tls } = route;
    if (listen === undefined) {
      if (tls !== undefined)
        judge.error('tls_without_listen', at(route, 'tls'), [
          'tls of a route needs its listen',
          'or write server: { tls }',
        ]);
      continue;
    }
    const colon = listen.lastIndexOf(':');
    const host = listen.slice(0, colon).replace(/^\[(.*)\]$/, '$1');
    const port = Number(listen.slice(colon + 1));
    if (port > 65_535) judge.error('bad_listen', at(route, 'listen'), [`${port} is no port`, '0 to 65535']);
    if (port !== 0 && (port === file.server.port || port === file.server.admin_port) && meets(host, file.server.host))
      judge.error('same_port', at(route, 'listen'), [
        `'${listen}' is where the gateway itself listens`,
        'another port',
      ]);
    const written = tls === undefined ? null : `${tls.cert}\n${tls.key}`;
    const before = found.get(listen);
    if (before !== undefined && written !== null && before.tls !== null && before.tls !== written)
      judge.error('listener_differs', at(route, 'tls'), [`Another route has other tls for ${listen}`, 'say it once']);
    if (before === undefined || (before.tls === null && tls !== undefined)) {
      const pair = tls === undefined ? null : await resolveTlsPair(tls, judge, reading);
      found.set(listen, { tls: written, settings: { at: listen, host, port, tls: pair } });
    }
  }
  return [...found.values()].map(({ settings }) => settings);
}

/** Whether two addresses are equal, or one includes the other. */
function meets(one: string, other: string): boolean {
  const all = ['0.0.0.0', '::', '[::]'];
  return one.toLowerCase() === other.toLowerCase() || all.includes(one) || all.includes(other);
}
