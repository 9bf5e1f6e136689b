import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openEmbeddedStore } from '../../src/stores/embedded/open.ts';
import { describeStoreContract } from './store-contract.ts';

describeStoreContract(
  'the embedded store',
  async (options) => {
    const path = mkdtempSync(join(tmpdir(), 'svc-store-'));
    const openAgain = () => openEmbeddedStore({ path, lockWaitMs: 0, worker: 'never', ...options });
    const at = { store: await openAgain() };
    const reopen = async () => (await at.store.close(), (at.store = await openAgain()));
    const close = async () => (await at.store.close(), rmSync(path, { recursive: true }));
    return {
      get store() {
        return at.store;
      },
      reopen,
      close,
    };
  },
  { noClock: null, ownersSurvive: null },
);
