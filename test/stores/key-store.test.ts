import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EffectStore } from '../../src/effects/store.ts';
import { probeStore, openKeyStore } from '../../src/gateway/embedded-store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { dispatched, keyRecord, PERSON, settleRequest, FAILED, WORKSPACE } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

let path = '';
let gateway: EffectStore | null = null;

async function startGateway(): Promise<EffectStore> {
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  gateway = await openEmbeddedStore({ path, lockWaitMs: 0, retention, keySeals: KEY_SEALS, worker: 'never' });
  return gateway;
}

beforeEach(() => {
  path = storeFolder();
});
afterEach(async () => {
  await gateway?.close();
  gateway = null;
  rmSync(path, { recursive: true });
});

describe('keys made beside a gateway', () => {
  it('are there for the gateway at once, and it is told', async () => {
    const store = await startGateway();
    await dispatched(store);
    const heard = vi.fn();
    store.onKeysChanged(heard);
    const key = keyRecord();
    const beside = await openKeyStore({ path }, KEY_SEALS);
    expect(beside.installId).toBe(store.installId);
    await beside.putKey(key, PERSON);
    expect(await store.key(key.handle)).toEqual(key);
    expect(heard).toHaveBeenCalledWith(null);
    await beside.close();
  });

  it('are noticed without anybody asking', async () => {
    const store = await startGateway();
    const heard = vi.fn();
    store.onKeysChanged(heard);
    const beside = await openKeyStore({ path }, KEY_SEALS);
    await beside.putKey(keyRecord(), PERSON);
    await vi.waitFor(() => expect(heard).toHaveBeenCalledWith(null), { timeout: 40_000, interval: 20 });
    await beside.close();
  });

  it('leave the ledger without gaps while calls run', async () => {
    const store = await startGateway();
    const beside = await openKeyStore({ path }, KEY_SEALS);
    const calls = (async () => {
      for (let n = 0; n < 60; n += 1) {
        const { effect } = await dispatched(store);
        await store.settle(settleRequest(effect, FAILED));
      }
    })();
    for (let n = 0; n < 20; n += 1) {
      await beside.putKey(keyRecord(), PERSON);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await calls;
    const events = await store.ledger(WORKSPACE, 0, 10_000);
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, n) => n + 1));
    expect(events.filter(({ kind }) => kind === 'key.created')).toHaveLength(20);
    expect(events.filter(({ kind }) => kind === 'effect.admitted')).toHaveLength(60);
    await beside.close();
  });

  it('can be revoked there', async () => {
    const store = await startGateway();
    const key = keyRecord();
    await store.putKey(key, PERSON);
    const beside = await openKeyStore({ path }, KEY_SEALS);
    expect(await beside.keys(null)).toEqual([key]);
    await beside.endKey(key.id, { kind: 'revoked' }, PERSON);
    expect((await store.key(key.handle))?.revokedAt).toBeGreaterThan(0);
    await beside.close();
  });

  it('can be made before the first gateway starts', async () => {
    const before = await openKeyStore({ path }, KEY_SEALS);
    const key = keyRecord();
    await before.putKey(key, PERSON);
    await before.close();
    const store = await startGateway();
    expect(store.installId).toBe(before.installId);
    expect(store.health()).toMatchObject({ ready: true, epoch: 1 });
    expect(await store.key(key.handle)).toEqual(key);
  });
});

describe('a glance at a store', () => {
  it('sees that nothing is there, and makes nothing', async () => {
    expect(await probeStore({ path: join(path, 'none') })).toEqual({ state: 'absent' });
    expect(await probeStore({ path })).toEqual({ state: 'absent' });
  });

  it('sees whether a gateway uses it, and its keys', async () => {
    const store = await startGateway();
    const key = keyRecord();
    await store.putKey(key, PERSON);
    expect(await probeStore({ path })).toEqual({ state: 'ready', durability: 'fsync', inUse: true, keys: [key] });
    // Looking must not have taken the gateway's lock away.
    expect(await probeStore({ path })).toMatchObject({ inUse: true });
    await store.close();
    expect(await probeStore({ path })).toMatchObject({ state: 'ready', inUse: false });
  });

  it('sees that it was emptied', async () => {
    const store = await startGateway();
    await store.close();
    rmSync(join(path, 'store.db'));
    expect(await probeStore({ path })).toMatchObject({ state: 'broken', inUse: false });
  });
});
