import type { CliPorts, FormatReport } from '../cli/ports.ts';
import type { RedisStoreSettings } from '../config/configuration.ts';
import { loadConfiguration, OF_STORE } from '../config/load.ts';
import { placeOf } from './store-place.ts';
import { readFormat, type StoredFormat } from '../stores/embedded/format.ts';
import { probeRedis } from '../stores/redis/probe.ts';

const ON_REDIS = { store: 'redis', format: null, current: null, records: null } as const;

const NO_MIGRATION = [
  'There is no migration of a store on Redis: a gateway refuses one that another version with another format has written.',
  'To begin anew: let calls under way end (svc pause --all, then wait until svc effects list --state executing shows none), stop all gateways of the version before, give the new ones a Redis of their own (another server, or another database number) and another store.journal, and start them.',
  'What stays behind in the old one: effects and what their idempotency keys are bound to, so that a retry of an earlier call runs again; the ledger and receipts (receipts that callers have stay valid, with the same signing keys); spent and held budgets; approvals that wait; claims, reservations and pauses; API keys, which are made anew with svc keys create. Keep the old Redis and its journals until nobody asks for what is in it.',
];

/** What a start would do with the store on Redis. The nodes of a cluster are not searched for it. */
async function reportOnRedis(settings: RedisStoreSettings): Promise<FormatReport> {
  const probe = await probeRedis(settings);
  switch (probe.state) {
    case 'absent':
      return { ...ON_REDIS, start: 'makes', explanation: ['There is no store on this Redis: a start makes one.'] };
    case 'other_format':
      return {
        ...ON_REDIS,
        start: 'refuses',
        explanation: ['The store on this Redis was written by another version, in another format.', ...NO_MIGRATION],
      };
    case 'unfit':
      return { ...ON_REDIS, start: 'refuses', explanation: [probe.message] };
    case 'ready':
      if (settings.mode === 'cluster') return { ...ON_REDIS, start: 'none', explanation: NO_MIGRATION };
      return { ...ON_REDIS, start: 'opens', explanation: ['A start opens the store on this Redis as it is.'] };
  }
}

/** What format the store has, and what a start would do. */
export const checkFormat: CliPorts['checkFormat'] = async ({ configFile, environment }) => {
  const { configuration } = await loadConfiguration(configFile, { environment, sections: OF_STORE });
  const { store } = configuration;
  return store.kind === 'redis' ? reportOnRedis(store) : reportOn(store.path, await readFormat(placeOf(store)));
};

function reportOn(path: string, found: StoredFormat): FormatReport {
  const { current } = found;
  const report = { store: 'embedded', format: null, current, records: null } as const;
  switch (found.state) {
    case 'absent':
      return {
        ...report,
        start: 'makes',
        explanation: [`There is no store in ${path}: a start makes one, of format ${current}.`],
      };
    case 'unusable':
      return { ...report, start: 'refuses', explanation: [found.message] };
    case 'current':
      return {
        ...report,
        format: current,
        records: found.records,
        start: 'opens',
        explanation: [
          `The store in ${path} has format ${current}; this version works with ${current}.`,
          'A start opens it as it is.',
        ],
      };
  }
}
