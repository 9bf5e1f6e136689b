import { availableParallelism } from 'node:os';
import type { KeySeals } from '../effects/model/key.ts';
import { INSTALLATION } from '../effects/model/ledger.ts';
import type { EffectStore } from '../effects/store.ts';
import { createEffectStore } from '../records/effect-store.ts';
import type { Retention } from '../records/retention.ts';
import { operatorEvent, PROGRAM_MODULE } from '../records/program.ts';
import type { OpenRows } from '../stores/open-rows.ts';
import { openRedisRows, type RedisRows, type RedisRowsOptions } from '../stores/redis/rows/open.ts';
import { openThreadedRows } from '../stores/redis/rows/threaded.ts';
import { threadEntry } from '../stores/threads/thread.ts';
import { timeAccepted } from './time-accepted.ts';

export interface RedisStoreOptions extends Omit<RedisRowsOptions, 'operatorEvent' | 'onEnded'> {
  readonly retention: Retention;
  readonly keySeals: KeySeals;
  /** How long a process may be frozen between its last check and the write to the socket, ms. */
  readonly maxFreezeMs: number;
}

export type FleetStore = EffectStore & Pick<RedisRows, 'announce' | 'others'>;

/** A store on Redis, with functions that only operators of several gateways need. */
export type RedisStore = FleetStore & Pick<RedisRows, 'recoverLost' | 'acceptLoss' | 'acceptTime'>;

/**
 * Opens the store on Redis, for the gateway: in a thread of its own, if the machine has two cores or more.
 * @throws as {@link openRedisStore} does
 */
export async function openRedisStoreInThread(options: RedisStoreOptions): Promise<FleetStore> {
  const entry = availableParallelism() >= 2 ? threadEntry() : null;
  if (entry === null) return openRedisStore(options);
  const { retention, keySeals, maxFreezeMs, clock, ...settings } = options;
  if (clock !== undefined) throw new TypeError('a clock of a test cannot cross to another thread');
  const rows = await openThreadedRows(entry, { rows: settings, maxFreezeMs, program: PROGRAM_MODULE.href });
  return onFleet(rows, { retention, keySeals, maxFreezeMs });
}

/**
 * Opens the store on Redis in this thread. It tries to connect as long as it is open. While it cannot, everything
 * rejects at once.
 * @throws Error for settings of the servers that cannot be used, StoreUnavailable if they cannot be reached
 */
export async function openRedisStore({
  retention,
  keySeals,
  maxFreezeMs,
  ...options
}: RedisStoreOptions): Promise<RedisStore> {
  const rows = await openRedisRows({ ...options, operatorEvent });
  const store = onFleet(rows, { retention, keySeals, maxFreezeMs });
  return Object.assign(store, {
    recoverLost: rows.recoverLost,
    acceptLoss: rows.acceptLoss,
    async acceptTime() {
      const accepted = await rows.acceptTime();
      if (accepted !== null) await store.append(INSTALLATION, [timeAccepted(accepted)]);
      return accepted;
    },
  });
}

/** The store of effects is added to, and not copied: a copy of its getter would be a value. */
function onFleet(
  rows: OpenRows & Pick<RedisRows, 'announce' | 'others'>,
  options: Parameters<typeof createEffectStore>[1],
): FleetStore {
  return Object.assign(createEffectStore(rows, options), { announce: rows.announce, others: rows.others });
}
