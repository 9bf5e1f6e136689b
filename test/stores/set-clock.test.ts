import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { admitRequest, dispatched, leaseOf, resolveRequest, WORKSPACE } from '../contract/requests.ts';
import { makeDisk } from '../torture/disk.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const HOUR = 3_600_000;

const opened: EffectStore[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const store of opened.splice(0)) await store.close();
});

async function open(path: string, clock?: () => number): Promise<EffectStore> {
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  const own = clock === undefined ? {} : { clock };
  const store = await openEmbeddedStore({
    path,
    lockWaitMs: 5000,
    retention,
    keySeals: KEY_SEALS,
    worker: 'never',
    ...own,
  });
  opened.push(store);
  return store;
}

it('set forward while the gateway was down: what it had sent is not taken to be quiet before its time', async () => {
  const path = storeFolder();
  let now = 1_800_000_000_000;
  const first = await open(path, () => now);
  const { effect } = await dispatched(first);
  await first.close();
  now += HOUR;
  const second = await open(path, () => now);
  const found = await second.effect(WORKSPACE, effect.id);
  if (found === null) throw new Error('it is gone');
  const quiet = leaseOf(effect).quiesceUntil + HOUR;
  expect(leaseOf(found).quiesceUntil).toBeGreaterThanOrEqual(quiet - 1);
  now = quiet - 1000;
  expect(await second.resolve(resolveRequest(found, 'not_happened'))).toMatchObject({ kind: 'too_early' });
  now = quiet + 1000;
  expect(await second.resolve(resolveRequest(found, 'not_happened'))).toMatchObject({ kind: 'resolved' });
  rmSync(path, { recursive: true });
});

it('set forward before a restart that was cut short: what that one did not declare is not taken to be quiet either', async () => {
  const path = storeFolder();
  let now = 1_800_000_000_000;
  const first = await open(path, () => now);
  const { effect } = await dispatched(first);
  await first.close();
  now += HOUR;
  const second = await open(path, () => now);
  await second.putWorkspace('another', { type: 'gateway', id: 'test' });
  await second.close();
  now += 1000;
  const third = await open(path, () => now);
  const { leaseEnd, quiesceUntil } = leaseOf(effect);
  now += quiesceUntil - leaseEnd - 1000;
  expect(await third.resolve(resolveRequest(effect, 'not_happened'))).toMatchObject({ kind: 'too_early' });
  now += 1000;
  expect(await third.resolve(resolveRequest(effect, 'not_happened'))).toMatchObject({ kind: 'resolved' });
  rmSync(path, { recursive: true });
});

it.skipIf(process.getuid?.() !== 0)(
  'set forward while the disk was full: the process lives, and so does its time',
  async (context) => {
    const disk = await makeDisk();
    try {
      if (disk.fill === null) return context.skip('this machine lets nobody mount a file system');
      const store = await open(join(disk.folder, 'store'));
      await dispatched(store);
      const before = store.now();
      const machine = Date.now;
      vi.spyOn(Date, 'now').mockImplementation(() => machine() + HOUR);
      disk.fill(0);
      await vi.waitFor(() => expect(store.admit(admitRequest())).rejects.toBeInstanceOf(StoreUnavailable), {
        timeout: 40_000,
      });
      expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_full' } });
      disk.empty();
      await vi.waitFor(() => expect(store.health().ready).toBe(true), { timeout: 40_000, interval: 20 });
      await dispatched(store);
      expect(store.now() - before).toBeLessThan(HOUR / 10);
      await store.close();
    } finally {
      await disk.remove();
    }
  },
);
