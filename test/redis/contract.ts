import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { EffectStore } from '../../src/effects/store.ts';
import { openRedisStore, type RedisStoreOptions } from '../../src/gateway/redis-store.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { loadFleetProgram } from '../../src/records/program.ts';
import { keepKey, type OpenProgram, type OpenRows, type ProgramKeys } from '../../src/stores/open-rows.ts';
import { openRedisRows } from '../../src/stores/redis/rows/open.ts';
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

/**
 * A store whose steps run as they do in a thread of their own, but here, where the clock of a test is.
 * @param instead what the gateway knows of the store
 */
export async function openThroughProgram(
  options: RedisStoreOptions,
  instead: Partial<OpenRows> = {},
): Promise<EffectStore> {
  const { retention, keySeals, maxFreezeMs, ...settings } = options;
  const { operatorEvent, run } = await loadFleetProgram();
  const rows = await openRedisRows({ ...settings, operatorEvent });
  const keys: ProgramKeys = new Map();
  const { ask, commits, close } = run(rows, keys, maxFreezeMs);
  const program: OpenProgram = {
    ask(request, done, failed) {
      const answer = async (): Promise<void> => done(await ask(request));
      answer().catch(failed);
    },
    lend: (name, key) => keepKey(keys, name, key),
    keys,
    commits,
  };
  const through = {
    ...rows,
    get installId() {
      return rows.installId;
    },
    program,
    ...instead,
    async close() {
      await close();
      await rows.close();
    },
  };
  return createEffectStore(through, { retention, keySeals, maxFreezeMs });
}

/** Opens Redis stores for the contract, each on servers that were emptied. */
export function redisIn(
  servers: () => readonly RedisServer[],
  mode: RedisStoreOptions['mode'],
  open: (options: RedisStoreOptions) => Promise<EffectStore> = openRedisStore,
): OpenStore {
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
      () => open(options),
      () => rmSync(folder, { recursive: true }),
    );
  };
}
