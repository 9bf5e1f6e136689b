import { rmSync } from 'node:fs';
import { expect, it, vi } from 'vitest';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { dispatched } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const disk = vi.hoisted(() => ({ syncs: 0 }));

vi.mock('node:fs', async (original) => ({
  ...(await original<typeof import('node:fs')>()),
  // A disk that takes for ever: `behind.test.ts` says that nothing is answered meanwhile.
  fdatasync() {
    disk.syncs += 1;
  },
}));
vi.mock('../../src/stores/embedded/sync-queue.ts', async (original) => {
  const { planted } = await import('../planted-faults.ts');
  return planted(await original<typeof import('../../src/stores/embedded/sync-queue.ts')>(), 'answer-before-the-sync');
});

it('a store that answers before the disk has it (synchronous = NORMAL and no sync behind) is noticed', async () => {
  const path = storeFolder();
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  const store = await openEmbeddedStore({ path, lockWaitMs: 0, retention, keySeals: KEY_SEALS, worker: 'never' });
  expect((await dispatched(store)).kind).toBe('dispatch');
  expect(disk.syncs).toBe(0);
  await store.close();
  rmSync(path, { recursive: true });
});
