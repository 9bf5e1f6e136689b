import { loadConfiguration, OF_STORE } from '../config/load.ts';
import type { CliPorts } from '../cli/ports.ts';
import { KEY_KINDS } from '../effects/model/principal.ts';
import { keyState } from '../identity/key-record.ts';
import { probeStore } from './embedded-store.ts';
import { placeOf } from './store-place.ts';
import { inspectRedis } from './redis-for-commands.ts';

/** Looks at a store without changing it, even while a gateway runs on it. */
export const inspectStore: CliPorts['inspectStore'] = async ({ configFile, environment }) => {
  const { configuration } = await loadConfiguration(configFile, { environment, sections: OF_STORE });
  if (configuration.store.kind === 'redis') return inspectRedis(configuration.store);
  const { path } = configuration.store;
  const probe = await probeStore(placeOf(configuration.store));
  switch (probe.state) {
    case 'absent':
      return { state: 'absent', problem: null, durability: null, inUse: false, keys: null };
    case 'broken':
      return {
        state: 'broken',
        problem: {
          message: probe.message,
          remedy: probe.notAllowed
            ? `Run this as the user that owns ${path}, and see that its disk is mounted for writing. What is in it is as it was: restore no backup for this.`
            : `Look at ${path}. To go on from a backup: svc restore BACKUP --config ${configFile} --replace. Do not start with an empty store: calls that ran would be sent again.`,
        },
        durability: null,
        inUse: probe.inUse,
        keys: null,
      };
    case 'ready': {
      const keys = { account: 0, agent: 0, administrative: 0, profile: 0 };
      for (const kind of KEY_KINDS)
        keys[kind] = probe.keys.filter((key) => key.kind === kind && keyState(key, Date.now()) === 'active').length;
      return { state: 'ready', problem: null, durability: probe.durability, inUse: probe.inUse, keys };
    }
  }
};
