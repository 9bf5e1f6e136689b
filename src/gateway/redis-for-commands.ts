import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CommandFailure, type StoreInspection } from '../cli/ports.ts';
import type { Configuration, RedisStoreSettings } from '../config/configuration.ts';
import type { KeySeals } from '../effects/model/key.ts';
import { openStepJournal, rememberedInstall } from '../stores/journal/step-journal.ts';
import { probeRedis } from '../stores/redis/probe.ts';
import { UNJUDGED } from './key-seals.ts';
import { openFit, redisOptions } from './open-store.ts';
import type { RedisStore } from './redis-store.ts';

/** What only servers with a replica are fit for. */
const REPLICATED = { durability: 'replica', allowWeakDurability: false } as const;

/**
 * Opens the store on Redis for a command that runs beside the gateways, under a temporary name. If a gateway's journal
 * is here, the store must be the one that the journal knows: the command must not write to an emptied one.
 * @param keySeals checks and makes the seals of keys, if the command reads or writes any
 * @param isConfirmed where there are replicas, what is written is answered once one has it. A command's own journal is
 *   gone with it, so a fail-over would bring a key back that was revoked
 * @throws StoreUnavailable, CommandFailure
 */
export async function openForCommand(
  settings: RedisStoreSettings,
  retention: Configuration['retention'],
  keySeals: KeySeals = UNJUDGED,
  isConfirmed = false,
): Promise<RedisStore> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-command-'));
  // No gateway has a colon in its name. A new epoch does not wait for a command, because a command has no journal.
  const gatewayId = `command:${randomBytes(4).toString('hex')}`;
  try {
    const installId = await rememberedInstall(settings.journal).catch((error: unknown) => {
      throw error instanceof Error ? new CommandFailure(error.message) : error;
    });
    if (installId !== null) {
      const journal = await openStepJournal(folder);
      await journal.remember({ installId, gatewayId, accepted: 0 });
      await journal.close();
    }
    const hasReplica = isConfirmed && (await probeRedis({ ...settings, ...REPLICATED })).state !== 'unfit';
    const durability = hasReplica ? REPLICATED.durability : settings.durability;
    const store = await openFit({ ...redisOptions(settings, retention, folder, gatewayId), durability, keySeals });
    return {
      ...store,
      async close() {
        await store.close();
        await rm(folder, { recursive: true, force: true });
      },
    };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** Looks at the servers without changing anything in them. */
export async function inspectRedis(settings: RedisStoreSettings): Promise<StoreInspection> {
  const none = { inUse: false, keys: null };
  const probe = await probeRedis(settings);
  switch (probe.state) {
    case 'absent':
      return { state: 'absent', problem: null, durability: null, ...none };
    case 'other_format':
      return {
        state: 'broken',
        problem: {
          message: probe.message,
          remedy: 'Run svc migrate --check: it says how to begin anew, and what stays behind.',
        },
        durability: null,
        ...none,
      };
    case 'unfit':
      return {
        state: 'broken',
        problem: {
          message: probe.message,
          remedy: 'Look at the settings of the servers and at store.url; docs/operating/redis.md says what is needed.',
        },
        durability: null,
        ...none,
      };
    case 'ready':
      return { state: 'ready', problem: null, durability: settings.durability, ...none, inUse: probe.gateways > 0 };
  }
}
