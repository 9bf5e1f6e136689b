import { createEffectStore } from '../../src/records/effect-store.ts';
import type { OpenRows } from '../../src/stores/open-rows.ts';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import type { OpenStore } from '../contract/fixture.ts';
import { describeStoreContract } from '../contract/store-contract.ts';
import { emptyRows, mapStore } from './map-rows.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

/** The rules over rows in memory: what a store of rows has to do beside keeping them is not in it. */
const open: OpenStore = async ({ retention, clock }) => {
  const rows = emptyRows();
  let bootedAt = 0;
  let begun = clock();
  const openRows = (): EffectStore => {
    let last = begun;
    const time = (): number => {
      last = Math.max(last, Math.floor(clock()));
      begun = last;
      return last;
    };
    const before = bootedAt;
    bootedAt = time();
    const declared = new Set<string>();
    const inMemory = mapStore(rows, time);
    let closed = false;
    const store: OpenRows = {
      ...inMemory,
      commit: (change) => (closed ? Promise.reject(new StoreUnavailable('closed')) : inMemory.commit(change)),
      async close() {
        closed = true;
      },
      installId: 'map',
      health: () => ({ ready: true, problem: null, durability: 'none', epoch: rows.epoch }),
      impediment: () => null,
      ended: {
        owner: null,
        known: async () => {},
        any: (workspace) => before > 0 && !declared.has(workspace),
        quietAt: (_, lease) =>
          lease.owner === 'never' ? null : lease.admittedAt < bootedAt ? lease.quiesceUntil : null,
        none: (workspace) => void declared.add(workspace),
      },
    };
    return createEffectStore(store, { retention, keySeals: KEY_SEALS, maxFreezeMs: 0 });
  };
  let store = openRows();
  return {
    get store() {
      return store;
    },
    async reopen() {
      await store.close();
      // A boot begins after all that was before it.
      begun += 1;
      store = openRows();
      return store;
    },
    close: () => store.close(),
  };
};

describeStoreContract('the rules over rows in memory', open, { noClock: null });
