import type { KeySeals } from '../effects/model/key.ts';
import { INSTALLATION } from '../effects/model/ledger.ts';
import type { EffectStore } from '../effects/store.ts';
import { createEffectStore } from '../records/effect-store.ts';
import type { Retention } from '../records/retention.ts';
import { eventDraft } from '../records/view.ts';
import { openRedisRows, type RedisRows, type RedisRowsOptions } from '../stores/redis/rows/open.ts';
import { timeAccepted } from './time-accepted.ts';

export interface RedisStoreOptions extends Omit<RedisRowsOptions, 'operatorEvent'> {
  readonly retention: Retention;
  /** Checks and makes the seals of keys. */
  readonly keySeals: KeySeals;
  /** How long a process may be frozen between its last check and the write to the socket, ms. */
  readonly maxFreezeMs: number;
}

/** A store on Redis, with functions that only operators of several gateways need. */
export type RedisStore = EffectStore &
  Pick<RedisRows, 'recoverLost' | 'acceptLoss' | 'acceptTime' | 'announce' | 'others'>;

/**
 * Opens the store on Redis, for the gateway. It tries to connect as long as it is open. While it cannot, everything
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
  const store = createEffectStore(rows, { retention, keySeals, maxFreezeMs });
  return {
    ...store,
    get installId() {
      return rows.installId;
    },
    recoverLost: rows.recoverLost,
    acceptLoss: rows.acceptLoss,
    async acceptTime() {
      const accepted = await rows.acceptTime();
      if (accepted !== null) await store.append(INSTALLATION, [timeAccepted(accepted)]);
      return accepted;
    },
    announce: rows.announce,
    others: rows.others,
  };
}

/** What an operator decided about a gateway, as an event of the ledger. */
const operatorEvent: RedisRowsOptions['operatorEvent'] = (kind, gateway) =>
  eventDraft({ kind, effectId: null, actor: { type: 'gateway', id: 'command-line' }, data: { gateway } }).text;
