import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import { probeStore, openKeyStore } from '../../src/gateway/embedded-store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import {
  admitRequest,
  committed,
  dispatched,
  keyRecord,
  PERSON,
  settleRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

let path = '';
const opened: EffectStore[] = [];

async function open(at = path, lockWaitMs = 0): Promise<EffectStore> {
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  const store = await openEmbeddedStore({ path: at, lockWaitMs, retention, keySeals: KEY_SEALS, worker: 'never' });
  opened.push(store);
  return store;
}

beforeEach(() => {
  path = storeFolder();
});
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
  rmSync(path, { recursive: true });
});

/** Copies of the store's files, as a backup would have them; the store is closed. */
function backUp(to: string): void {
  mkdirSync(to);
  copyFileSync(join(path, 'store.db'), join(to, 'store.db'));
}

describe('a store that was set back', () => {
  async function expectRefused(store: EffectStore): Promise<void> {
    expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_rolled_back' } });
    expect(store.health().problem?.message).not.toContain('a copy');
    await expect(store.admit(admitRequest())).rejects.toBeInstanceOf(StoreUnavailable);
    await expect(store.preview(admitRequest())).rejects.toBeInstanceOf(StoreUnavailable);
    await expect(store.putKey(keyRecord(), PERSON)).rejects.toBeInstanceOf(StoreUnavailable);
    await expect(store.keys(null)).rejects.toBeInstanceOf(StoreUnavailable);
    await expect(openKeyStore({ path }, KEY_SEALS)).rejects.toBeInstanceOf(StoreUnavailable);
  }

  it('is not ready, and nothing is built on it', async () => {
    const first = await open();
    await dispatched(first, { idempotencyKey: 'old' });
    await first.close();
    const copy = join(path, 'backup');
    backUp(copy);
    const second = await open();
    await dispatched(second, { idempotencyKey: 'new' });
    await second.close();
    copyFileSync(join(copy, 'store.db'), join(path, 'store.db'));
    const restored = await open();
    expect(restored.installId).toBe(first.installId);
    await expectRefused(restored);
  });

  it('is not taken for a new one when it was emptied', async () => {
    const first = await open();
    await dispatched(first);
    await first.close();
    rmSync(join(path, 'store.db'));
    await expectRefused(await open());
  });

  it('is not taken for ours when it is another installation’s', async () => {
    const first = await open();
    await first.close();
    const elsewhere = join(path, 'elsewhere');
    const other = await open(elsewhere);
    await dispatched(other);
    await other.close();
    copyFileSync(join(elsewhere, 'store.db'), join(path, 'store.db'));
    await expectRefused(await open());
  });

  it('goes on in a new epoch when the loss is accepted', async () => {
    const first = await open();
    const { epoch } = first.health();
    await dispatched(first, { idempotencyKey: 'k' });
    await first.close();
    rmSync(join(path, 'install.json'));
    const accepted = await open();
    expect(accepted.health()).toMatchObject({ ready: true, epoch: epoch + 1 });
    expect(await accepted.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({
      kind: 'existing',
      effect: { life: { state: 'unknown' } },
    });
    const { effect } = await dispatched(accepted);
    expect(effect.life).toMatchObject({ lease: { fence: { epoch: epoch + 1 } } });
    await accepted.close();
    expect((await open()).health()).toMatchObject({ ready: true, epoch: epoch + 1 });
  });

  it('is not opened when the mark beside it is unreadable', async () => {
    const first = await open();
    await first.close();
    writeFileSync(join(path, 'install.json'), '{"install_id":');
    await expect(open()).rejects.toThrow(/install\.json is damaged/);
    await expect(open()).rejects.toBeInstanceOf(StoreUnavailable);
  });
});

describe('a store whose file is broken', () => {
  it('is refused with a sentence for people, and left as it is', async () => {
    const first = await open();
    await first.close();
    const garbage = Buffer.alloc(65_536, 'not a database ');
    writeFileSync(join(path, 'store.db'), garbage);
    await expect(open()).rejects.toThrow(/store\.db is damaged. Restore it from a backup/);
    await expect(open()).rejects.toBeInstanceOf(StoreUnavailable);
    expect(readFileSync(join(path, 'store.db')).equals(garbage)).toBe(true);
  });

  it('of a later version is refused, not changed', async () => {
    const first = await open();
    await first.close();
    const file = join(path, 'store.db');
    const bytes = readFileSync(file);
    bytes.writeUInt32BE(99, 60);
    writeFileSync(file, bytes);
    await expect(open()).rejects.toThrow(/written by a later version/);
    expect(readFileSync(file).readUInt32BE(60)).toBe(99);
  });
});

const isRoot = process.getuid?.() === 0;

/** A file system of its own that can be filled; only root can make one. */
function mountSmall(size: string): string | null {
  const folder = join(path, 'small');
  mkdirSync(folder);
  const mounted =
    isRoot && spawnSync('/bin/mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', folder]).status === 0;
  return mounted ? folder : null;
}

describe('a full disk', () => {
  it.skipIf(!isRoot)(
    'admits nothing while it is full, loses nothing, and goes on when there is room',
    async (context) => {
      const disk = mountSmall('6m');
      if (disk === null) {
        context.skip('this machine lets nobody mount a file system');
        return;
      }
      try {
        const store = await open(join(disk, 'store'));
        const early = await dispatched(store, { idempotencyKey: 'early' });
        const filler = join(disk, 'filler');
        expect(spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=4k']).status).not.toBe(0);

        const kept: string[] = [];
        let refused: unknown = null;
        for (let n = 0; refused === null && n < 5_000; n += 1) {
          try {
            const { effect } = await dispatched(store, { metadata: { filling: 'x'.repeat(4_000) } });
            kept.push(effect.id);
          } catch (error) {
            refused = error;
          }
        }
        expect(refused).toBeInstanceOf(StoreUnavailable);
        expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_full' } });
        await expect(store.admit(admitRequest())).rejects.toBeInstanceOf(StoreUnavailable);
        await expect(store.effect(WORKSPACE, early.effect.id)).rejects.toBeInstanceOf(StoreUnavailable);

        rmSync(filler);
        await vi.waitFor(() => expect(store.health()).toMatchObject({ ready: true, problem: null }), {
          timeout: 40_000,
          interval: 50,
        });
        for (const id of kept) expect(await store.effect(WORKSPACE, id)).not.toBeNull();
        // What was under way when the store was lost may have happened, as after a crash; its owner can still say.
        expect(await store.effect(WORKSPACE, early.effect.id)).toMatchObject({ life: { state: 'unknown' } });
        expect(await store.settle(settleRequest(early.effect, committed()))).toMatchObject({ kind: 'settled' });
        await dispatched(store);
        const events = await store.ledger(WORKSPACE, 0, 100_000);
        expect(events.map(({ seq }) => seq)).toEqual(events.map((_, n) => n + 1));
        await store.close();
      } finally {
        // Lazily: on Node 20 the driver holds the files until its statements are collected.
        execFileSync('/bin/umount', ['-l', disk]);
      }
    },
  );
});

describe('the files of a store', () => {
  it('are for their owner only', async () => {
    const folder = join(path, 'new', 'data');
    const store = await open(folder);
    await dispatched(store);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    for (const file of ['store.db', 'store.db-wal', 'store.db-shm', 'lock.db', 'install.json']) {
      expect(statSync(join(folder, file)).mode & 0o777, file).toBe(0o600);
    }
  });

  it('are for their owner only again, where they were opened to others', async () => {
    await (await open()).close();
    for (const file of ['store.db', 'lock.db']) chmodSync(join(path, file), 0o644);
    await open();
    for (const file of ['store.db', 'lock.db']) expect(statSync(join(path, file)).mode & 0o777, file).toBe(0o600);
  });

  it('are locked within one process too', async () => {
    const first = await open();
    await expect(open()).rejects.toThrow(/Another gateway uses the store/);
    const second = open(path, 5_000);
    await first.close();
    expect(await (await second).admit(admitRequest())).toMatchObject({ kind: 'dispatch' });
  });
});

describe('a folder of another version', () => {
  async function alter(sql: string): Promise<void> {
    await (await open()).close();
    opened.pop();
    const database = (await loadDriver())(join(path, 'store.db'));
    database.exec(sql);
    database.close();
  }

  it('is refused with what to do: a later version wrote it', async () => {
    await alter('PRAGMA user_version = 3');
    const said = expect.objectContaining({
      name: 'StoreUnavailable',
      message: expect.stringMatching(new RegExp(`${path}.*format 3.*later version; use that version`)),
    });
    await expect(open()).rejects.toEqual(said);
    await expect(openKeyStore({ path }, KEY_SEALS)).rejects.toEqual(said);
    expect(await probeStore({ path })).toMatchObject({ state: 'broken', message: expect.stringContaining('format 3') });
  });

  it('is refused when the file is of another program', async () => {
    mkdirSync(path, { recursive: true });
    const database = (await loadDriver())(join(path, 'store.db'));
    database.exec('CREATE TABLE songs (id INTEGER)');
    database.close();
    await expect(open()).rejects.toThrow(/database of another program/);
  });
});
