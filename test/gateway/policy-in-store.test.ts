import { rmSync } from 'node:fs';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { followPolicy } from '../../src/gateway/core-ports.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { admitRequest } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const RETENTION = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
let path: string;
let opened: EffectStore;
beforeEach(async () => {
  path = storeFolder();
  opened = await openEmbeddedStore({
    path,
    lockWaitMs: 5000,
    retention: RETENTION,
    keySeals: KEY_SEALS,
    worker: 'never',
  });
  await opened.activatePolicy('v1', []);
});
afterEach(async () => {
  await opened.close();
  rmSync(path, { recursive: true });
});

it('while the policies in force cannot be taken on, nothing is judged, and the reason is said; then it goes on', async () => {
  let version = 'v1';
  let hindrance: string | null = 'no pool slots';
  const catchUp = followPolicy(() => version, {
    follow: async () => {
      if (hindrance === null) version = 'v2';
    },
    hindrance: () => hindrance,
  });
  const admit = () => opened.admit(admitRequest({ seen: { policy: version, pauses: 0 } }));
  expect((await admit()).kind).toBe('dispatch');
  await catchUp(null);

  await opened.activatePolicy('v2', []);
  expect((await admit()).kind).toBe('stale');
  await expect(catchUp('v2')).rejects.toThrow(new StoreUnavailable('no pool slots'));
  hindrance = null;
  await catchUp(null);
  expect((await admit()).kind).toBe('dispatch');
});

it('what could not be taken on is tried again for a call a second later, not for each; another version at once', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  let tries = 0;
  const follow = async () => void (tries += 1);
  const catchUp = followPolicy(() => 'v1', { follow, hindrance: () => 'no pool slots' });
  const told: number[] = [];
  for (const [ms, wanted] of [
    [0, 'v2'],
    [999, 'v2'],
    [1, 'v2'],
    [0, 'v3'],
  ] as const) {
    vi.advanceTimersByTime(ms);
    await expect(catchUp(wanted)).rejects.toThrow('no pool slots');
    told.push(tries);
  }
  vi.useRealTimers();
  expect(told).toEqual([1, 1, 2, 3]);
});

it('policies that take long to be taken on are waited for, and not for ever', async () => {
  let version = 'v1';
  let take: () => void = () => undefined;
  const catchUp = followPolicy(
    () => version,
    {
      follow: () =>
        new Promise((resolve) => {
          take = () => {
            version = 'v2';
            resolve();
          };
        }),
      hindrance: () => null,
    },
    20,
  );
  await opened.activatePolicy('v2', []);
  const admit = () => opened.admit(admitRequest({ seen: { policy: version, pauses: 0 } }));
  expect((await admit()).kind).toBe('stale');
  await expect(catchUp('v2')).rejects.toThrow('still being taken on');
  const waiting = catchUp('v2');
  take();
  await waiting;
  expect((await admit()).kind).toBe('dispatch');
});

it('what was heard of policies of before stands in no call’s way', async () => {
  let version = 'v0';
  const catchUp = followPolicy(() => version, { follow: async () => {}, hindrance: () => null });
  const late = await opened.admit(admitRequest({ seen: { policy: 'v0', pauses: 0 } }));
  expect(late.kind).toBe('stale');
  // Meanwhile the gateway has taken on what came after that.
  version = 'v2';
  await catchUp(late.kind === 'stale' ? late.versions.policy : null);
});
