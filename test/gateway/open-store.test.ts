import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openStore, redisOptions } from '../../src/gateway/open-store.ts';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import { acquireLock } from '../../src/stores/embedded/lock.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };

let path = '';
beforeEach(() => {
  path = storeFolder();
});
afterEach(() => rmSync(path, { recursive: true }));

it('a start waits for the lock of the store as long as store.lock_wait says', async () => {
  const lock = await acquireLock(path, await loadDriver(), 0);
  try {
    const store = {
      kind: 'embedded',
      path,
      fence: join(path, 'fence'),
      archive: null,
      backupEveryMs: null,
      lockWaitMs: 60,
      maxClockJumpMs: 1e9,
    } as const;
    await expect(openStore({ store, retention }, KEY_SEALS)).rejects.toThrow(
      /Another gateway uses the store .* \(waited 0\.06 s/,
    );
  } finally {
    lock.release();
  }
});

it('a store on Redis is opened with each of its settings', () => {
  const settings = {
    mode: 'cluster',
    url: 'redis://127.0.0.1:7001',
    nodes: ['127.0.0.1:7002'],
    durability: 'replica',
    allowWeakDurability: true,
    maxFreezeMs: 1_000,
    maxClockJumpMs: 3_600_000,
  } as const;
  const journal = join(tmpdir(), 'journal');
  expect(redisOptions({ kind: 'redis', journal: './elsewhere', ...settings }, retention, journal, 'gw-1')).toEqual({
    ...settings,
    retention,
    journalFolder: journal,
    gatewayId: 'gw-1',
  });
});
