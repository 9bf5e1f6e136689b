import { rmSync } from 'node:fs';
import { expect, it } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { followPolicy } from '../../src/gateway/policy-in-store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { admitRequest } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

it('while the files say something else than what is in force in the store, nothing is judged; then it goes on', async () => {
  const path = storeFolder();
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  const opened = await openEmbeddedStore({ path, lockWaitMs: 5000, retention, keySeals: KEY_SEALS, worker: 'never' });
  let version = 'v1';
  let files = 'v1';
  const { store, catchUp } = followPolicy(
    opened,
    () => version,
    async () => {
      version = files;
    },
  );
  const admit = () => store.admit(admitRequest({ seen: { policy: version, pauses: 0 } }));
  await store.activatePolicy('v1', []);
  expect((await admit()).kind).toBe('dispatch');
  await catchUp();

  await store.activatePolicy('v2', []);
  expect((await admit()).kind).toBe('stale');
  await expect(catchUp()).rejects.toBeInstanceOf(StoreUnavailable);
  files = 'v2';
  version = 'v2';
  await catchUp();
  expect((await admit()).kind).toBe('dispatch');
  await opened.close();
  rmSync(path, { recursive: true });
});
