import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { EffectStore } from '../../src/effects/store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { settlementTexts } from '../../src/records/settlement-text.ts';
import { openSpillJournal } from '../../src/stores/journal/spill.ts';
import { admitRequest, committed, settleRequest, WORKSPACE } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

let folder = '';
let store: EffectStore;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'svc-spill-'));
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  store = await openEmbeddedStore({
    path: join(folder, 'store'),
    lockWaitMs: 1000,
    retention,
    keySeals: KEY_SEALS,
    worker: 'never',
  });
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true });
});

it('hands settlements in once; one that cannot be read stays, is told of, and holds up no other', async () => {
  const spill = join(folder, 'spill');
  const journal = await openSpillJournal(spill, settlementTexts);
  const admitted = await Promise.all(['a', 'b'].map((idempotencyKey) => store.admit(admitRequest({ idempotencyKey }))));
  const effects = admitted.map((admission) => {
    if (admission.kind !== 'dispatch') throw new Error(admission.kind);
    return admission.effect;
  });
  for (const effect of effects) await journal.write(settleRequest(effect, committed()));
  writeFileSync(join(spill, '0-first.settlement.json'), '{"half');

  await expect(journal.drain(store)).rejects.toThrow(/0-first\.settlement\.json/);
  for (const { id } of effects)
    expect(await store.effect(WORKSPACE, id)).toMatchObject({ life: { state: 'committed' } });
  expect(readdirSync(spill)).toEqual(['0-first.settlement.json']);
  rmSync(join(spill, '0-first.settlement.json'));
  expect(await journal.drain(store)).toBe(0);
});

it('keeps them all while the store is away', async () => {
  const spill = join(folder, 'spill');
  const journal = await openSpillJournal(spill, settlementTexts);
  const admission = await store.admit(admitRequest());
  if (admission.kind !== 'dispatch') throw new Error(admission.kind);
  await journal.write(settleRequest(admission.effect, committed()));
  writeFileSync(join(spill, '0-first.settlement.json'), '{"half');
  await store.close();
  // What cannot be read is one of them.
  expect(await journal.drain(store)).toBe(2);
  expect(readdirSync(spill)).toHaveLength(2);
});

it('keeps a settlement whole until the store has it: a gateway that is killed meanwhile hands it in at its next start', async () => {
  const spill = join(folder, 'spill');
  const journal = await openSpillJournal(spill, settlementTexts);
  const admission = await store.admit(admitRequest());
  if (admission.kind !== 'dispatch') throw new Error(admission.kind);
  await journal.write(settleRequest(admission.effect, committed()));
  const [name = ''] = readdirSync(spill);
  const whole = readFileSync(join(spill, name), 'utf8');
  let meanwhile = '';
  await journal.drain({
    ...store,
    async settle(request) {
      meanwhile = readFileSync(join(spill, name), 'utf8');
      return store.settle(request);
    },
  });
  expect(meanwhile).toBe(whole);
  expect(readdirSync(spill)).toEqual([]);
});

it('syncs a settlement before it has its name, and the folder after', async () => {
  const spill = join(folder, 'spill');
  const journal = await openSpillJournal(spill, settlementTexts);
  const admission = await store.admit(admitRequest());
  if (admission.kind !== 'dispatch') throw new Error(admission.kind);
  const probe = await open(folder, 'r');
  const prototype: typeof probe = Object.getPrototypeOf(probe);
  await probe.close();
  const synced: { readonly inode: number; readonly named: number }[] = [];
  const sync = vi.spyOn(prototype, 'sync').mockImplementation(async function (this: typeof probe) {
    const named = readdirSync(spill).filter((name) => name.endsWith('.json')).length;
    synced.push({ inode: (await this.stat()).ino, named });
  });
  try {
    await journal.write(settleRequest(admission.effect, committed()));
  } finally {
    sync.mockRestore();
  }
  const [file = ''] = readdirSync(spill);
  expect(synced).toEqual([
    { inode: statSync(join(spill, file)).ino, named: 0 },
    { inode: statSync(spill).ino, named: 1 },
  ]);
  // It has answers of upstreams in it.
  expect(statSync(join(spill, file)).mode & 0o777).toBe(0o600);
});
