import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import {
  acceptRolledBack,
  acknowledgeLoss,
  openEmbeddedStore,
  openKeyStore,
} from '../../src/gateway/embedded-store.ts';
import { rolledBack } from '../../src/stores/embedded/boot.ts';
import { type InstallMark, readInstallMark, writeInstallMark } from '../../src/stores/embedded/install.ts';
import type { Fence } from '../../src/stores/embedded/marks.ts';
import type { FileMeta } from '../../src/stores/embedded/tables/meta-table.ts';
import { admitRequest, dispatched } from '../contract/requests.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

let folder: string;
let path: string;
let fence: Fence;
const opened: EffectStore[] = [];

beforeEach(() => {
  folder = storeFolder();
  path = join(folder, 'data');
  fence = { folder: join(folder, 'state'), isRequired: true };
});
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
  rmSync(folder, { recursive: true });
});

async function open(at: Fence = fence): Promise<EffectStore> {
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  const store = await openEmbeddedStore({
    path,
    fence: at,
    lockWaitMs: 0,
    retention,
    keySeals: KEY_SEALS,
    worker: 'never',
  });
  opened.push(store);
  return store;
}

/** One call, and then the store is closed. */
async function callOnce(idempotencyKey: string): Promise<void> {
  const store = await open();
  await dispatched(store, { idempotencyKey });
  await store.close();
}

/** The whole folder is set back to before the call with the key `new`, the mark beside the store included. */
async function setBack(): Promise<void> {
  await callOnce('old');
  cpSync(path, join(folder, 'copy'), { recursive: true });
  await callOnce('new');
  rmSync(path, { recursive: true });
  cpSync(join(folder, 'copy'), path, { recursive: true });
}

/** By the setting, and by default. */
const FENCES = [
  ['that was asked for', true],
  ['of the default', false],
] as const;

test.each(FENCES)('a folder that was set back as a whole is noticed by a fence %s', async (_, isRequired) => {
  fence = { ...fence, isRequired };
  await setBack();
  const store = await open();
  expect(store.health()).toMatchObject({
    ready: false,
    problem: {
      code: 'store_rolled_back',
      message: expect.stringContaining('If it is a copy, for a drill say') as unknown,
    },
  });
  expect(store.health().problem?.message).toContain('svc store accept-loss');
  await expect(store.admit(admitRequest())).rejects.toBeInstanceOf(StoreUnavailable);
  await expect(openKeyStore({ path, fence }, KEY_SEALS)).rejects.toThrow('older than this gateway has seen it');
});

const FOUND = { installId: 'one', epoch: 2, boots: 1, clock: 0, commits: 40 };
const MARK = { installId: 'one', epoch: 2, commits: 40, lost: 0, seen: null };

test.each<[string, FileMeta | null, InstallMark, string | null]>([
  ['as it was left', FOUND, MARK, null],
  ['newer', { ...FOUND, commits: 41 }, MARK, null],
  ['in a later epoch', { ...FOUND, epoch: 3 }, MARK, null],
  ['empty', null, MARK, 'is empty'],
  ['older', { ...FOUND, commits: 39 }, MARK, 'is older than this gateway has seen it'],
  // A store that was set back and went on has more transactions, and not those that are known.
  ['of an epoch before', { ...FOUND, epoch: 1, commits: 50 }, MARK, 'is older than this gateway has seen it'],
  ['another one', { ...FOUND, installId: 'other', epoch: 9, commits: 99 }, MARK, 'belongs to another installation'],
])('a store that is %s, by the mark beside it or outside', (_, found, mark, why) => {
  for (const marks of [
    { beside: mark, fenced: null },
    { beside: null, fenced: mark },
  ]) {
    const wrong = rolledBack('/data', found, marks);
    expect(wrong?.message ?? null).toEqual(why === null ? null : expect.stringContaining(`/data ${why}: `));
  }
});

test('a store that nothing remembers goes on in a new epoch: nobody can tell whether it is the newest', async () => {
  await callOnce('k');
  rmSync(join(path, 'install.json'));
  rmSync(fence.folder, { recursive: true });
  expect((await open()).health()).toMatchObject({ ready: true, epoch: 2 });
});

test('one that is as new as the fence opens, also where the mark beside it is gone', async () => {
  await callOnce('k');
  const { epoch } = (await open()).health();
  for (const store of opened.splice(0)) await store.close();
  rmSync(join(path, 'install.json'));
  expect((await open()).health()).toMatchObject({ ready: true, epoch });
});

test('an accepted loss is on the ledger, in a new epoch, and once only', async () => {
  await setBack();
  // What an interrupted restore had made does not take the place of the store that goes on.
  mkdirSync(join(path, 'restoring'));
  expect(await acceptRolledBack({ path, fence })).toBe(true);
  expect(existsSync(join(path, 'restoring'))).toBe(false);
  const store = await open();
  expect(store.health()).toMatchObject({ ready: true, epoch: 2 });
  expect(await store.admit(admitRequest({ idempotencyKey: 'old' }))).toMatchObject({ kind: 'existing' });
  const events = await store.ledger(INSTALLATION, 0, 100);
  const accepted = events.filter(({ kind }) => kind === 'store.loss_accepted');
  expect(accepted).toMatchObject([{ id: 'evt_2_1', actor: { id: 'svc store accept-loss' }, data: { epoch: 2 } }]);
  // How many transactions there are, and how many were known.
  const { transactions, transactions_known: known } = accepted[0]?.data ?? {};
  expect(Number(transactions)).toBeGreaterThan(0);
  expect(Number(known)).toBeGreaterThan(Number(transactions));
  await expect(acceptRolledBack({ path, fence })).rejects.toThrow('Another gateway uses the store');
  await store.close();
  expect(await acceptRolledBack({ path, fence })).toBe(false);
});

test('what a restore could not bring over is accepted by whoever accepts a store that was set back since', async () => {
  await setBack();
  expect(await acknowledgeLoss({ path, fence }, 1_750_000_000_000)).toBe(true);
  const store = await open();
  expect(store.health()).toMatchObject({ ready: true, epoch: 2 });
  // Also while a gateway runs on it; then nothing was lost since.
  expect(await acknowledgeLoss({ path, fence }, 1_750_000_000_000)).toBe(true);
  const events = await store.ledger(INSTALLATION, 0, 100);
  const accepted = events.filter(({ kind }) => kind === 'store.loss_accepted').map(({ data }) => data);
  expect(accepted).toMatchObject([{ epoch: 2 }, { restored_at: '2025-06-15T15:06:40.000Z' }]);
});

test.each(FENCES)('a damaged mark in a fence %s is told of, and can be accepted', async (_, isRequired) => {
  fence = { ...fence, isRequired };
  await callOnce('k');
  for (const name of readdirSync(fence.folder)) writeFileSync(join(fence.folder, name), '{"install');
  await expect(open()).rejects.toThrow(/is damaged.*svc store accept-loss/s);
  expect(await acceptRolledBack({ path, fence })).toBe(true);
  expect((await open()).health()).toMatchObject({ ready: true, epoch: 2 });
});

test('a fence that cannot be written: one that was asked for keeps the store shut, the default is only told of', async () => {
  // A file stands where the folder would be.
  writeFileSync(join(folder, 'state'), '');
  await expect(open()).rejects.toThrow(/mark outside the store|ENOTDIR/);
  const { ready, warning } = (await open({ ...fence, isRequired: false })).health();
  expect(ready).toBe(true);
  expect(warning).toContain(`cannot be written in ${fence.folder}`);
});

test('a mark outside that cannot be read, and could be written: only a fence that was asked for keeps the store shut', async () => {
  await setBack();
  const [name = ''] = readdirSync(fence.folder);
  rmSync(join(fence.folder, name));
  symlinkSync(name, join(fence.folder, name));
  await expect(open()).rejects.toThrow('ELOOP');
  expect((await open({ ...fence, isRequired: false })).health()).toMatchObject({ ready: true });
});

test('a fence that cannot be written any more is told of while the gateway runs, and so is that it can', async () => {
  const store = await open({ ...fence, isRequired: false });
  expect(store.health()).not.toHaveProperty('warning');
  rmSync(fence.folder, { recursive: true });
  writeFileSync(fence.folder, '');
  await dispatched(store);
  await expect.poll(() => store.health().warning).toContain(`cannot be written in ${fence.folder}`);
  rmSync(fence.folder);
  await dispatched(store);
  await expect.poll(() => store.health()).not.toHaveProperty('warning');
  expect(store.health()).toMatchObject({ ready: true });
});

test('an orderly end notes in the fence how far the store has come, for a copy of before it to be told from the newest', async () => {
  const noted = (): number => {
    const [name = ''] = readdirSync(fence.folder);
    return JSON.parse(readFileSync(join(fence.folder, name), 'utf8')).commits;
  };
  const store = await open();
  const before = noted();
  for (const idempotencyKey of ['a', 'b']) await dispatched(store, { idempotencyKey });
  await store.close();
  const after = noted();
  expect(after).toBeGreaterThanOrEqual(before + 2);
  await (await open()).close();
  expect(noted()).toBeGreaterThanOrEqual(after);
});

test('an emptied folder is a new store; the fence has a file for each', async () => {
  await callOnce('k');
  rmSync(path, { recursive: true });
  await callOnce('k');
  expect(readdirSync(fence.folder)).toHaveLength(2);
});

test.each([
  { lost: 0, seen: null },
  { lost: 7, seen: { boot: 'b', upMs: 5, time: 9 } },
])('a mark is read as it was written: %j', (more) => {
  const mark: InstallMark = { installId: 'i', epoch: 2, commits: 3, ...more };
  mkdirSync(path, { recursive: true });
  expect(readInstallMark(path)).toBeNull();
  writeInstallMark(path, mark);
  expect(readInstallMark(path)).toEqual(mark);
});
