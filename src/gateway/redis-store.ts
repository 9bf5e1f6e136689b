import type { KeySeals } from '../effects/model/key.ts';
import { INSTALLATION } from '../effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { ONLY, policyRows } from '../records/control-rows.ts';
import { createEffectStore } from '../records/effect-store.ts';
import type { Retention } from '../records/retention.ts';
import { eventDraft } from '../records/view.ts';
import type { InForceDigests } from '../stores/redis/board.ts';
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
export interface RedisStore extends EffectStore, Pick<RedisRows, 'recoverLost' | 'acceptLoss' | 'acceptTime'> {
  /** Tells the other gateways what is in force here. Call it once the policies have been activated. */
  announce(digests: InForceDigests): void;
  /** The policies in force in the store (`null` until known), and what the other gateways have in force, by name. */
  announced(): { readonly policies: string | null; readonly others: ReadonlyMap<string, InForceDigests> };
}

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
  const inForce = followPolicies(rows);
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
    announce(digests) {
      inForce.activated(digests.policies);
      rows.announce(digests);
    },
    announced: () => ({ policies: inForce.policies(), others: rows.others() }),
  };
}

/** Knows which policies are in force in the store, no matter who activated them. */
function followPolicies(rows: RedisRows): {
  policies(): string | null;
  /** Called with the policies that this gateway has activated. */
  activated(policies: string): void;
} {
  let policies: string | null = null;
  let told = 0;

  async function look(): Promise<void> {
    const before = told;
    const seen = await rows.read(INSTALLATION, [{ kind: policyRows.kind, id: ONLY }], [], true);
    const row = seen.rows[0]?.row ?? null;
    // A look that began before this gateway activated its policies is out of date.
    if (before === told && row !== null) policies = policyRows.of(row);
  }

  rows.watch([policyRows.kind], ({ workspace }) => {
    if (workspace !== null && workspace !== INSTALLATION) return;
    look().catch((error: unknown) => {
      if (!(error instanceof StoreUnavailable)) throw error;
    });
  });
  return {
    policies: () => policies,
    activated(own) {
      policies = own;
      told += 1;
    },
  };
}

/** What an operator decided about a gateway, as an event of the ledger. */
const operatorEvent: RedisRowsOptions['operatorEvent'] = (kind, gateway) =>
  eventDraft({ kind, effectId: null, actor: { type: 'gateway', id: 'command-line' }, data: { gateway } }).text;
