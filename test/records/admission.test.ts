import { afterEach, expect, it } from 'vitest';
import type { AdmitRequest, EffectStore } from '../../src/effects/store.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { admitRequest } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';

let store: EffectStore;
afterEach(() => store.close());

/** A store that names the owner of leases, as that of a fleet does. */
function openStore(): EffectStore {
  const rows = mapStore(emptyRows(), () => 1000);
  return createEffectStore(
    { ...rows, ...ALONE, ended: { ...ALONE.ended, owner: 'boot-1' } },
    { retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 }, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
}

it('a duplicate is told without what only a new effect needs, also where the store names the owner of leases', async () => {
  store = openStore();
  let made = 0;
  const ask = (): AdmitRequest => ({
    ...admitRequest({ idempotencyKey: 'once' }),
    get sealed() {
      made += 1;
      return 'sealed';
    },
    get approvalId(): string {
      throw new Error('nothing waits for approval');
    },
  });
  const first = await store.admit(ask());
  expect(first).toMatchObject({ kind: 'dispatch', effect: { life: { lease: { owner: 'boot-1' } }, sealed: 'sealed' } });
  const madeOnce = made;
  expect(madeOnce).toBeGreaterThan(0);
  expect((await store.admit(ask())).kind).toBe('existing');
  expect(made).toBe(madeOnce);
});
