import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { CommandFailure } from '../cli/ports.ts';
import type { Configuration, RedisStoreSettings } from '../config/configuration.ts';
import type { KeySeals } from '../effects/model/key.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { makeKeyFile, readKeyFile } from '../secrets/key-file.ts';
import { loadDriver } from '../stores/embedded/driver.ts';
import { acquireLock } from '../stores/embedded/lock.ts';
import { openEmbeddedStore } from './embedded-store.ts';
import { makePrivateFolder } from '../stores/private-folder.ts';
import { placeOf } from './store-place.ts';
import type { FleetStore, RedisStore, RedisStoreOptions } from './redis-store.ts';

/** How long a start waits for the previous gateway to release the journal, ms. */
const JOURNAL_WAIT_MS = 10_000;

/**
 * Opens the store that the configuration names. A store on Redis opens even if the servers cannot be reached.
 * @param keySeals checks and makes the seals of keys
 * @throws CommandFailure for settings that cannot be used, StoreUnavailable
 */
export async function openStoreAndFleet(
  { store: settings, retention }: Pick<Configuration, 'store' | 'retention'>,
  keySeals: KeySeals,
): Promise<{ readonly store: EffectStore; readonly fleet: Pick<FleetStore, 'announce' | 'others'> | null }> {
  switch (settings.kind) {
    case 'embedded': {
      const { archive, lockWaitMs, maxClockJumpMs } = settings;
      return {
        store: await openEmbeddedStore({
          ...placeOf(settings),
          archive,
          lockWaitMs,
          maxClockJumpMs,
          retention,
          keySeals,
          worker: 'auto',
        }),
        fleet: null,
      };
    }
    case 'redis': {
      const store = await asGateway(settings, retention, keySeals, openFitInThread);
      return { store, fleet: store };
    }
  }
}

/** Only the store, opened as {@link openStoreAndFleet} does. */
export async function openStore(
  of: Pick<Configuration, 'store' | 'retention'>,
  keySeals: KeySeals,
): Promise<EffectStore> {
  return (await openStoreAndFleet(of, keySeals)).store;
}

/**
 * Opens the store on Redis as this gateway, with its journal, for a command.
 * @throws CommandFailure, also while the gateway runs; StoreUnavailable
 */
export function openOnRedis(
  settings: RedisStoreSettings,
  retention: Configuration['retention'],
  keySeals: KeySeals,
): Promise<RedisStore> {
  return asGateway(settings, retention, keySeals, openFit);
}

async function asGateway<Store extends FleetStore>(
  settings: RedisStoreSettings,
  retention: Configuration['retention'],
  keySeals: KeySeals,
  open: (options: RedisStoreOptions) => Promise<Store>,
): Promise<Store> {
  const { journal } = settings;
  makePrivateFolder(journal);
  // Two gateways must not share a journal: each would hand in the other's steps as its own.
  const lock = await acquireLock(journal, await loadDriver(), JOURNAL_WAIT_MS).catch((error: unknown) => {
    if (!(error instanceof StoreUnavailable)) throw error;
    throw new CommandFailure(
      `Another gateway uses the journal in ${journal}. Stop it, or give this one a store.journal of its own.`,
    );
  });
  try {
    const gatewayId = await gatewayIdIn(journal);
    const options = { ...redisOptions(settings, retention, journal, gatewayId), keySeals };
    const store = await open({ ...options, openUnreached: true });
    const close = store.close;
    // A copy of the store's getter would be a value.
    return Object.assign(store, {
      async close() {
        await close();
        lock.release();
      },
    });
  } catch (error) {
    lock.release();
    throw error;
  }
}

export function redisOptions(
  settings: RedisStoreSettings,
  retention: Configuration['retention'],
  journalFolder: string,
  gatewayId: string,
): Omit<RedisStoreOptions, 'keySeals'> {
  const { mode, url, nodes, durability, allowWeakDurability, maxFreezeMs, maxClockJumpMs } = settings;
  return {
    mode,
    url,
    nodes,
    durability,
    allowWeakDurability,
    journalFolder,
    maxFreezeMs,
    maxClockJumpMs,
    retention,
    gatewayId,
  };
}

/** Opens a store on Redis. If the servers' settings do not fit, the error is one for people. */
export const openFit = (options: RedisStoreOptions): Promise<RedisStore> =>
  fit(({ openRedisStore }) => openRedisStore(options));

/** The same in a thread of its own. */
const openFitInThread = (options: RedisStoreOptions): Promise<FleetStore> =>
  fit(({ openRedisStoreInThread }) => openRedisStoreInThread(options));

async function fit<Store>(open: (on: typeof import('./redis-store.ts')) => Promise<Store>): Promise<Store> {
  try {
    // The embedded store needs no client for Redis.
    return await open(await import('./redis-store.ts'));
  } catch (error) {
    if (error instanceof StoreUnavailable || !(error instanceof Error)) throw error;
    throw new CommandFailure(error.message);
  }
}

/** The name of this gateway among those that share the store. It is made once and kept with the journal. */
async function gatewayIdIn(journal: string): Promise<string> {
  const file = join(journal, 'gateway-id');
  const host = hostname().replaceAll(/[^A-Za-z0-9-]/g, '-');
  await makeKeyFile(file, `${host.slice(0, 40)}-${randomBytes(3).toString('hex')}\n`);
  const id = (await readKeyFile(file))?.trim() ?? '';
  if (id === '')
    throw new CommandFailure(`${file} is empty. Restore it, or move it away and declare that gateway lost.`);
  return id;
}
