import { rmSync } from 'node:fs';
import { openRedisRows, type RedisRowsOptions } from '../../src/stores/redis/rows/open.ts';
import { reopening } from '../contract/reopening.ts';
import type { OpenPort } from '../port/changes.ts';
import { journalFolder } from './contract.ts';
import type { RedisServer } from './servers.ts';

/** What tests do not care about, filled in. */
export function rowsOptions(server: RedisServer, more: Partial<RedisRowsOptions> = {}): RedisRowsOptions {
  return {
    mode: 'standalone',
    url: server.url,
    nodes: [],
    durability: 'fsync',
    allowWeakDurability: false,
    journalFolder: '',
    gatewayId: 'gw-1',
    operatorEvent: (kind, gateway) => `${kind} ${gateway}`,
    ...more,
  };
}

/** Opens stores of rows for the port's contract, each on servers that were emptied. */
export function rowsIn(
  servers: () => readonly RedisServer[],
  mode: RedisRowsOptions['mode'],
  withClock: boolean,
): OpenPort {
  return async () => {
    const [first] = servers();
    if (first === undefined) throw new Error('a store needs a server');
    await Promise.all(servers().map((server) => server.client.flushall()));
    const folder = journalFolder();
    let now = Date.now();
    const options = rowsOptions(first, {
      mode,
      nodes: mode === 'cluster' ? servers().map((server) => server.address) : [],
      journalFolder: folder,
      ...(withClock ? { clock: () => now } : {}),
    });
    const store = await reopening(
      () => openRedisRows(options),
      () => rmSync(folder, { recursive: true }),
    );
    // A copy would keep the store of before the restart.
    return Object.assign(store, {
      setClock: withClock
        ? (next: number) => {
            now = next;
          }
        : null,
    });
  };
}
