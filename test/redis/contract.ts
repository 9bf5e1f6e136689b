import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openRedisStore, type RedisStoreOptions } from '../../src/gateway/redis-store.ts';
import type { OpenStore } from '../contract/fixture.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { reopening } from '../contract/reopening.ts';
import type { RedisServer } from './servers.ts';

/** What tests do not care about, filled in. */
export function redisOptions(server: RedisServer, more: Partial<RedisStoreOptions> = {}): RedisStoreOptions {
  return {
    mode: 'standalone',
    url: server.url,
    nodes: [],
    durability: 'fsync',
    allowWeakDurability: false,
    journalFolder: '',
    keySeals: KEY_SEALS,
    maxFreezeMs: 0,
    retention: { keysMs: null, effectsMs: 30 * 86_400_000, denialsMs: 7 * 86_400_000 },
    gatewayId: 'gw-1',
    ...more,
  };
}

/** A folder for a journal that the test removes. */
export function journalFolder(): string {
  return mkdtempSync(join(tmpdir(), 'svc-journal-'));
}

/** Opens Redis stores for the contract, each on servers that were emptied. */
export function redisIn(servers: () => readonly RedisServer[], mode: RedisStoreOptions['mode']): OpenStore {
  return async ({ retention, clock }) => {
    const [first] = servers();
    if (first === undefined) throw new Error('a store needs a server');
    await Promise.all(servers().map((server) => server.client.flushall()));
    const folder = journalFolder();
    const options = redisOptions(first, {
      mode,
      nodes: mode === 'cluster' ? servers().map((server) => server.address) : [],
      journalFolder: folder,
      retention,
      clock,
    });
    return reopening(
      () => openRedisStore(options),
      () => rmSync(folder, { recursive: true }),
    );
  };
}
