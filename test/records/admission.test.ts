import { afterEach, expect, it } from 'vitest';
import type { AdmitRequest, EffectStore } from '../../src/effects/store.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { admitRequest, budgetOf, committed, dispatched, permit, settleRequest } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';

const opened: EffectStore[] = [];
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
});

/** A store that names the owner of leases, as that of a fleet does. */
function openStore(rows = mapStore(emptyRows(), () => 1000)): EffectStore {
  const store = createEffectStore(
    { ...rows, ...ALONE, ended: { ...ALONE.ended, owner: 'boot-1' } },
    { retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 }, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
  opened.push(store);
  return store;
}

it('a duplicate is told without what only a new effect needs, also where the store names the owner of leases', async () => {
  const store = openStore();
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

it('a budget is told as it is in the store, with what other gateways have held and spent since this one looked', async () => {
  const rows = mapStore(emptyRows(), () => 1000);
  const [one, other] = [openStore(rows), openStore(rows)];
  const costs = (amount: number) => ({ verdict: permit([budgetOf(1000, amount)]) });
  await dispatched(one, costs(1));
  await dispatched(other, costs(20));
  const { effect } = await dispatched(other, costs(300));
  await other.settle(settleRequest(effect, committed()));
  expect((await dispatched(one, costs(4))).budgets).toMatchObject([{ held: 25, spent: 300 }]);
});
