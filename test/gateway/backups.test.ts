import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CommandFailure } from '../../src/cli/ports.ts';
import { backUpStore, restoreStore } from '../../src/gateway/backups.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { noteUpkeep, readUpkeep } from '../../src/gateway/upkeep.ts';
import { RETENTION } from '../contract/fixture.ts';
import { admitRequest, dispatched } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

/* What svc backup and svc restore leave in the folders that they are given, also where something keeps them from it. */

let folder = '';
const at = (...names: readonly string[]): string => join(folder, ...names);
const stored = (...names: readonly string[]): string => at('store', ...names);
const options = () => ({ configFile: at('gateway.yaml'), environment: {} });
const open = () =>
  openEmbeddedStore({ path: stored(), lockWaitMs: 0, worker: 'never', retention: RETENTION, keySeals: KEY_SEALS });
const backUp = (to = 'backup') => backUpStore(options(), at(to));
const restore = (replace = true, from = 'backup') => restoreStore(options(), at(from), replace);

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'svc-backups-'));
  const [path, fence] = [stored(), at('fence')].map((one) => JSON.stringify(one));
  writeFileSync(at('gateway.yaml'), `store: { path: ${path}, fence: ${fence} }\n`);
  await called('before');
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

/** A gateway sends a call, and ends. */
async function called(idempotencyKey: string): Promise<void> {
  const store = await open();
  await dispatched(store, { idempotencyKey });
  await store.close();
}

async function isKnown(idempotencyKey: string): Promise<boolean> {
  const store = await open();
  const { kind } = await store.admit(admitRequest({ idempotencyKey }));
  await store.close();
  return kind !== 'dispatch';
}

/** Whether a start takes the store for one that something is missing from. */
async function isRefused(): Promise<boolean> {
  const store = await open();
  const { problem } = store.health();
  await store.close();
  return problem?.code === 'store_rolled_back';
}

describe('svc backup', () => {
  it('is whole, and says so, where it cannot be noted that it was made', async () => {
    mkdirSync(stored('last-backup.json'));
    const { warning } = await backUp();
    expect(warning).toContain('last-backup.json');
    rmSync(stored(), { recursive: true });
    expect((await restore(false)).replaced).toBeNull();
  });

  it('has a folder of its own: one file in it is one too many, and stays as it is', async () => {
    mkdirSync(at('backup'));
    writeFileSync(at('backup', 'notes'), 'of somebody');
    await expect(backUp()).rejects.toThrow('is not empty');
    expect(readdirSync(at('backup'))).toEqual(['notes']);
    rmSync(at('backup', 'notes'));
    await backUp();
    expect(existsSync(at('backup', 'backup.json'))).toBe(true);
  });

  it('says of a store on Redis who makes its backups', async () => {
    writeFileSync(at('gateway.yaml'), 'store: { kind: redis, url: "redis://127.0.0.1:1" }\n');
    for (const ask of [backUp, restore]) await expect(ask()).rejects.toThrow('on Redis, which makes its own');
  });
});

describe('svc restore', () => {
  it('makes a store where there was none, and leaves nothing beside it', async () => {
    await backUp();
    rmSync(stored(), { recursive: true });
    rmSync(at('fence'), { recursive: true, force: true });
    const restored = await restore(false);
    expect(restored).toMatchObject({ replaced: null, carried: null, hasLoss: false, warning: null });
    expect(readdirSync(stored()).filter((name) => /^(replaced|restoring)/.test(name))).toEqual([]);
    expect(await isKnown('before')).toBe(true);
  });

  it('says what remembers the store from outside no longer', async () => {
    await backUp();
    writeFileSync(at('gateway.yaml'), `store: { path: ${JSON.stringify(stored())} }\n`);
    writeFileSync(at('state'), '');
    vi.stubEnv('XDG_STATE_HOME', at('state'));
    expect((await restore()).warning).toContain('The mark outside the store cannot be written');
  });

  it('tells of no loss where the store that is gone had nothing more than the backup', async () => {
    await backUp();
    rmSync(stored('store.db'));
    const restored = await restore();
    expect(restored.transactionsKnown).toBe(restored.transactions);
    expect([restored.hasLoss, (await readUpkeep(stored())).restore]).toEqual([false, null]);
  });

  it('tells of no loss that was acknowledged', async () => {
    await backUp();
    await noteUpkeep(stored(), 'restore', { at: 1, clean: true });
    expect((await restore()).hasLoss).toBe(false);
  });

  it('makes nothing where there is no backup', async () => {
    writeFileSync(at('gateway.yaml'), `store: { path: ${JSON.stringify(at('other'))} }\n`);
    await expect(restore(false, 'nowhere')).rejects.toThrow(CommandFailure);
    expect(existsSync(at('other'))).toBe(false);
  });

  it('says what the system said as something to read, not as a fault of the program', async () => {
    await backUp();
    mkdirSync(stored('spill', 'odd.settlement.json'), { recursive: true });
    await expect(restore()).rejects.toThrow(CommandFailure);
  });

  it('is refused while a gateway uses the store, and says so', async () => {
    await backUp();
    const store = await open();
    await expect(restore()).rejects.toThrow(CommandFailure);
    await store.close();
  });

  it('of a settlement that is in both, keeps that of the store that is replaced: it is the later one', async () => {
    mkdirSync(stored('spill'), { recursive: true });
    writeFileSync(stored('spill', 'x.settlement.json'), '"early"');
    await backUp();
    writeFileSync(stored('spill', 'x.settlement.json'), '"late"');
    await restore();
    expect(readFileSync(stored('spill', 'x.settlement.json'), 'utf8')).toBe('"late"');
  });

  it('puts aside what is left beside a store that is gone, so that it does not meet the new one', async () => {
    await backUp();
    rmSync(stored('store.db'));
    const left = ['store.db-shm', 'store.db-wal'];
    for (const name of left) writeFileSync(stored(name), name);
    const { replaced } = await restore(false);
    expect(readdirSync(replaced ?? '').toSorted()).toEqual(left);
    expect(await isKnown('before')).toBe(true);
  });

  it('that is interrupted before the store is aside leaves it whole, is refused by a start, and goes on', async () => {
    await backUp();
    await called('since');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
    // Something stands where the store is to be put.
    const aside = stored(`replaced-${new Date().toISOString().replaceAll(':', '')}`);
    writeFileSync(aside, '');
    await expect(restore()).rejects.toThrow(CommandFailure);
    expect(existsSync(stored('store.db'))).toBe(true);
    expect(await isRefused()).toBe(true);
    rmSync(aside);
    const goneOn = await restore(false);
    expect(goneOn).toMatchObject({ replaced: aside, transactionsKnown: null, hasLoss: false });
    expect(await isKnown('since')).toBe(true);
  });

  it('that is interrupted once the store is aside brings over what was not settled when it goes on', async () => {
    mkdirSync(stored('spill'), { recursive: true });
    writeFileSync(stored('spill', 'x.settlement.json'), '"of the backup"');
    await backUp();
    rmSync(stored('spill'), { recursive: true });
    symlinkSync(at('nowhere'), stored('spill'));
    await expect(restore()).rejects.toThrow(CommandFailure);
    expect(existsSync(stored('store.db'))).toBe(false);
    rmSync(stored('spill'));
    expect((await restore(false)).replaced).toBeNull();
    expect(readFileSync(stored('spill', 'x.settlement.json'), 'utf8')).toBe('"of the backup"');
    expect(await isKnown('before')).toBe(true);
  });
});
