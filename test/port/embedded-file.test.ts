import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import type { Watched } from '../../src/stores/port.ts';
import { checkBackup, unpackBackup, writeBackup } from '../../src/stores/embedded/backup.ts';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import { openEmbeddedRows } from '../../src/stores/embedded/open.ts';
import type { OpenRows } from '../../src/stores/open-rows.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { changeOf, done, eventOf, listOf, moved, newPlace, putOf, sumOf } from './changes.ts';

type Done = (error: Error | null) => void;

/** Syncs that were asked for and have not returned; the disk is as slow, or as broken, as a test says. */
const disk = vi.hoisted(() => ({
  held: null as (() => void)[] | null,
  fault: null as Error | null,
  /** The next read of a journal fails. */
  failsToRead: false,
}));

vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>();
  return {
    ...real,
    fdatasync(descriptor: number, ended: Done) {
      const go = (): void => {
        if (disk.fault === null) real.fdatasync(descriptor, ended);
        else ended(disk.fault);
      };
      if (disk.held === null) go();
      else disk.held.push(go);
    },
    readSync(...asked: Parameters<typeof real.readSync>) {
      if (!disk.failsToRead) return real.readSync(...asked);
      disk.failsToRead = false;
      throw Object.assign(new Error('i/o error'), { code: 'EIO' });
    },
  };
});

let path = '';
let store: OpenRows;
const open = (): Promise<OpenRows> => openEmbeddedRows({ path, lockWaitMs: 0, worker: 'never' });

beforeEach(async () => {
  disk.held = null;
  disk.fault = null;
  path = storeFolder();
  store = await open();
});
afterEach(async () => {
  release();
  await store.close();
  rmSync(path, { recursive: true });
});

function release(): void {
  const held = disk.held ?? [];
  disk.held = null;
  for (const go of held) go();
}

/** Whether a promise has come to anything after many turns of the event loop. */
async function isOpen(promise: Promise<unknown>): Promise<boolean> {
  let open = true;
  const ended = (): void => {
    open = false;
  };
  promise.then(ended, ended);
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  return open;
}

test('a file in the place of its folder, or above it, is named', async () => {
  writeFileSync(join(path, 'file'), '');
  for (const there of [join(path, 'file'), join(path, 'file', 'data')]) {
    const opened = openEmbeddedRows({ path: there, lockWaitMs: 0, worker: 'never' });
    await expect(opened).rejects.toThrow(`store.path, ${there}, has to be a folder`);
  }
});

test('no answer leaves before the disk has what it tells of: not of what changed nothing, nor of a look', async () => {
  const place = await newPlace(store, 'w');
  disk.held = [];
  const put = place.commit({
    puts: [putOf('thing', 'a', 'x', { enter: [{ list: 'l', at: 1 }] })],
    events: [eventOf('e', 'a')],
  });
  const answers = [
    put,
    place.commit({ guards: [{ kind: 'thing', id: 'b', version: '' }] }),
    place.commit({ puts: [putOf('thing', 'a', 'y')] }),
    place.row('thing', 'a'),
  ];
  await new Promise((resolve) => setImmediate(resolve));
  const looks = [
    store.list(listOf('w', 'l')),
    store.ledger({ workspace: 'w', about: 'a', order: 'up', after: null, limit: 10 }),
    store.sums('w', 10),
  ];
  for (const answer of [...answers, ...looks]) expect(await isOpen(answer)).toBe(true);
  release();
  expect(
    (await Promise.all(answers.slice(0, 3))).map((answer) => answer !== null && 'kind' in answer && answer.kind),
  ).toEqual(['done', 'done', 'moved']);
  expect((await store.list(listOf('w', 'l'))).entries).toHaveLength(1);
});

test('a sync that fails ends the store: what waits for it is rejected, and nothing more is taken', async () => {
  const place = await newPlace(store, 'w');
  disk.held = [];
  const put = place.commit({ puts: [putOf('thing', 'a', 'x')] });
  expect(await isOpen(put)).toBe(true);
  disk.fault = Object.assign(new Error('i/o error'), { code: 'EIO' });
  release();
  await expect(put).rejects.toBeInstanceOf(StoreUnavailable);
  expect(store.health().problem?.code).toBe('store_sync_failed');
  await expect(place.commit({})).rejects.toBeInstanceOf(StoreUnavailable);
  // The file is not even opened for it.
  rmSync(join(path, 'store.db'));
  await expect(store.list(listOf('w', 'l'))).rejects.toThrow(/could not be synced/);
  expect(existsSync(join(path, 'store.db'))).toBe(false);
});

test('a store that breaks down is closed for readers too, and opened as after a crash', async () => {
  const place = await newPlace(store, 'w');
  const put = (id: string): ReturnType<typeof place.commit> =>
    place.commit({ puts: [putOf('thing', id, 'x', { enter: [{ list: 'l', at: 1 }] })] });
  const headerOfJournal = (): Buffer => readFileSync(join(path, 'store.db-wal')).subarray(0, 32);
  done(await put('a'));
  expect(await place.ids('l')).toEqual(['a']);
  const before = headerOfJournal();
  disk.failsToRead = true;
  done(await put('b'));
  await expect.poll(() => store.health().problem?.code).toBe('store_unavailable');
  await expect(place.ids('l')).rejects.toBeInstanceOf(StoreUnavailable);
  await expect.poll(() => store.health().ready).toBe(true);
  done(await put('c'));
  expect(await place.ids('l')).toEqual(['a', 'b', 'c']);
  // Only the last connection to close a file removes its journal.
  expect(headerOfJournal().equals(before)).toBe(false);
});

test('what another process wrote is seen, and told', async () => {
  const place = await newPlace(store, 'w');
  const heard: Watched[] = [];
  store.watch(['thing'], (changed) => heard.push(changed));
  done(
    await place.commit({
      id: 'first',
      puts: [putOf('thing', 'a', 'x')],
      sums: [sumOf('s', { spend: 1 })],
      events: [eventOf('e')],
    }),
  );
  heard.length = 0;
  const other = (await loadDriver())(join(path, 'store.db'));
  other.exec("UPDATE rows SET version = 'other', text = 'y'; UPDATE figures SET spent = 5;");
  other.close();
  await expect.poll(() => heard).toEqual([{ workspace: null, kind: 'thing', id: null }]);
  const answer = moved(
    await place.commit({ puts: [putOf('thing', 'a', 'z', { version: 'first' })], sums: [sumOf('s')] }),
  );
  expect(answer.rows).toEqual([{ kind: 'thing', id: 'a', row: { version: 'other', text: 'y' } }]);
  expect(answer.counters).toEqual([{ spent: 5, held: 0, rows: 1 }]);
});

test('the first row of a kind is seen, whether another process made it or this one', async () => {
  const place = await newPlace(store, 'w');
  done(await place.commit({ puts: [putOf('thing', 'a', 'x')] }));
  const wants = ['theirs', 'ours'].map((kind) => ({ kind, id: 'b' }));
  const seen = async () => (await store.read('w', wants, [])).rows.map(({ row }) => row?.text);
  expect(await seen()).toEqual([undefined, undefined]);
  const other = (await loadDriver())(join(path, 'store.db'));
  other.exec(`
    INSERT INTO names (n, workspace, type, name) SELECT 99, n, 1, 'theirs' FROM names WHERE workspace = 0 AND name = 'w';
    INSERT INTO rows (kind, id, version, text) VALUES (99, 'b', 'other', 'y');
  `);
  other.close();
  expect(await seen()).toEqual(['y', undefined]);
  done(await place.commit({ puts: [putOf('ours', 'b', 'z')] }));
  expect(await seen()).toEqual(['y', 'z']);
  await store.close();
  store = await open();
  expect(await seen()).toEqual(['y', 'z']);
});

test('a store that was set back is noticed, and answers nothing', async () => {
  const place = await newPlace(store, 'w');
  done(await place.commit({ puts: [putOf('thing', 'a', 'x')] }));
  await store.close();
  const copy = readFileSync(join(path, 'store.db'));
  store = await open();
  done(await (await newPlace(store, 'w')).commit({ puts: [putOf('thing', 'b', 'x')] }));
  await store.close();
  writeFileSync(join(path, 'store.db'), copy);
  store = await open();
  expect(store.health().problem?.code).toBe('store_rolled_back');
  await expect(store.commit(changeOf('w', 1))).rejects.toBeInstanceOf(StoreUnavailable);
  await store.close();
  rmSync(join(path, 'install.json'));
  store = await open();
  const { epoch } = await store.read('w', [], []);
  expect(epoch).toBe(place.epoch + 1);
  moved(await store.commit(changeOf('w', place.epoch)));
});

test('a file of the format before is refused, and says so', async () => {
  await store.close();
  rmSync(path, { recursive: true });
  path = storeFolder();
  const old = (await loadDriver())(join(path, 'store.db'));
  old.exec('CREATE TABLE effects (n INTEGER PRIMARY KEY); PRAGMA user_version = 1');
  old.close();
  await expect(open()).rejects.toThrow(/format 1/);
  rmSync(path, { recursive: true });
  path = storeFolder();
  store = await open();
});

test('a change that cannot be written fails alone, and its neighbours and the store go on', async () => {
  const place = await newPlace(store, 'w');
  const broken = place.commit({ puts: [putOf('thing', 'a', 'x', { enter: [{ list: 'l', at: Number.NaN }] })] });
  const beside = place.commit({ puts: [putOf('thing', 'b', 'x')] });
  await expect(broken).rejects.toThrow();
  done(await beside);
  done(await place.commit({ puts: [putOf('thing', 'c', 'x')] }));
  await expect(place.commit({ sums: [sumOf('s', { spend: 0.5 })] })).rejects.toThrow();
  await expect(place.commit({ sums: [sumOf('s', { hold: Number.NaN })] })).rejects.toThrow();
  expect(await place.row('thing', 'a')).toBeNull();
  expect(await place.store.sums('w', 10)).toEqual([]);
});

test('a change that fails when it has written something already takes nothing of its neighbours with it', async () => {
  const place = await newPlace(store, 'w');
  const torn = {
    about: null,
    get text(): string {
      throw new Error('it is torn');
    },
  };
  const answers = [
    place.commit({ puts: [putOf('thing', 'a', 'x')] }),
    place.commit({ puts: [putOf('thing', 'b', 'x')], sums: [sumOf('s', { spend: 1 })], events: [torn] }),
    place.commit({ puts: [putOf('thing', 'c', 'x')], sums: [sumOf('s', { spend: 2 })], events: [eventOf('e')] }),
  ];
  const [first, broken, last] = await Promise.allSettled(answers);
  expect(broken).toMatchObject({ status: 'rejected', reason: { message: 'it is torn' } });
  for (const each of [first, last]) expect(each).toMatchObject({ value: { kind: 'done' } });
  expect(await Promise.all(['a', 'b', 'c'].map((id) => place.row('thing', id)))).toMatchObject([{}, null, {}]);
  expect(await store.sums('w', 10)).toMatchObject([{ spent: 2 }]);
  await expect(place.commit({ events: [torn] })).rejects.toThrow('it is torn');
  expect(store.health().ready).toBe(true);
});

test('the store’s time is not before that of a change, also over an orderly end', async () => {
  const place = await newPlace(store, 'w');
  const at = store.now() + 1_500;
  expect(done(await place.commit({ at, puts: [putOf('thing', 'a', 'x')] })).now).toBeGreaterThanOrEqual(at);
  expect(done(await place.commit({ puts: [putOf('thing', 'b', 'x')] })).now).toBeGreaterThanOrEqual(at);
  await store.close();
  store = await open();
  expect((await store.read('w', [], [])).now).toBeGreaterThanOrEqual(at);
});

const reopened = async (): Promise<number> => {
  await store.close();
  const { size } = statSync(join(path, 'store.db'));
  store = await open();
  return size;
};

test.each([
  ['that are gone', null],
  ['of which little is left', 'x'.repeat(100)],
])('a file with rows %s becomes smaller, some pages with each sweep', async (_, left) => {
  const ids = Array.from({ length: 1_600 }, (__, n) => `row-${n}`);
  const filled = ids.map((id) => putOf('thing', id, 'x'.repeat(2_500)));
  done(await (await newPlace(store, 'w')).commit({ id: 'filled', puts: filled }));
  const full = await reopened();
  const shorter = ids.map((id) => putOf('thing', id, left, { version: 'filled' }));
  done(await (await newPlace(store, 'w')).commit({ puts: shorter }));
  expect(await reopened()).toBeGreaterThanOrEqual(full);
  for (let sweeps = 0; sweeps < 20; sweeps += 1) await store.prune('w', 100);
  const small = await reopened();
  expect(small).toBeLessThan(full / 2);
  const place = await newPlace(store, 'w');
  expect(await Promise.all(ids.map(async (id) => (await place.row('thing', id))?.text ?? null))).toEqual(
    ids.map(() => left),
  );
  // Some are kept for what comes.
  expect(small).toBeGreaterThan(64 * 8192);
});

test('a start changes nothing of a journal that a killed process had begun, before that is on the disk', async () => {
  done(await (await newPlace(store, 'w')).commit({ puts: [putOf('thing', 'a', 'x')] }));
  const other = (await loadDriver())(join(path, 'store.db'));
  other.prepare('PRAGMA wal_checkpoint(PASSIVE)').all();
  const killed = storeFolder();
  for (const name of ['store.db', 'install.json']) copyFileSync(join(path, name), join(killed, name));
  // Its head, and not all of the first page: whoever writes next writes over it.
  writeFileSync(join(killed, 'store.db-wal'), readFileSync(join(path, 'store.db-wal')).subarray(0, 100));
  other.close();
  const reopened = await openEmbeddedRows({ path: killed, lockWaitMs: 0, worker: 'never' });
  expect((await reopened.read('w', [{ kind: 'thing', id: 'a' }], [])).rows).toMatchObject([{ row: { text: 'x' } }]);
  await reopened.close();
  rmSync(killed, { recursive: true });
});

test('of a store that is damaged no backup is made', async () => {
  const place = await newPlace(store, 'w');
  await place.commit({ puts: Array.from({ length: 2_000 }, (_, n) => putOf('thing', `${n}`, 'x'.repeat(500))) });
  await store.close();
  const file = join(path, 'store.db');
  const bytes = readFileSync(file);
  // The head of a page of rows, far behind those that a start reads.
  const at = 8_192 * Math.floor(bytes.length / 8_192 / 2);
  writeFileSync(file, bytes.fill(0xff, at, at + 8));
  const backup = storeFolder();
  await expect(writeBackup(path, backup, null)).rejects.toThrow(/damaged|malformed/);
  expect(existsSync(join(backup, 'backup.json'))).toBe(false);
  rmSync(backup, { recursive: true });
  rmSync(path, { recursive: true });
  path = storeFolder();
  store = await open();
});

test('a store that keeps its empty pages gives them back once it was restored from a backup', async () => {
  await store.close();
  const file = join(path, 'store.db');
  const setting = async (sql: string): Promise<unknown> => {
    const database = (await loadDriver())(file);
    database.exec(sql);
    const [found] = database.prepare('PRAGMA auto_vacuum').all();
    database.close();
    return found?.['auto_vacuum'];
  };
  expect(await setting('PRAGMA auto_vacuum = NONE; VACUUM')).toBe(0);
  const backup = storeFolder();
  await writeBackup(path, backup, null);
  expect(await setting('')).toBe(0);
  await unpackBackup(backup, path);
  rmSync(backup, { recursive: true });
  expect(await setting('')).toBe(2);
  store = await open();
});

test('a store that was closed is whole in its file, also while another process has that open', async () => {
  const place = await newPlace(store);
  done(await place.commit({ puts: [putOf('thing', 'a', 'x')] }));
  const other = (await loadDriver())(join(path, 'store.db'));
  expect(other.prepare('SELECT count(*) AS count FROM rows').get()).toEqual({ count: 1 });
  await store.close();
  const copy = storeFolder();
  copyFileSync(join(path, 'store.db'), join(copy, 'store.db'));
  other.close();
  const whole = await openEmbeddedRows({ path: copy, lockWaitMs: 0, worker: 'never' });
  const { rows } = await whole.read(place.workspace, [{ kind: 'thing', id: 'a' }], []);
  expect(rows).toMatchObject([{ row: { text: 'x' } }]);
  await whole.close();
  rmSync(copy, { recursive: true });
  store = await open();
});

test('a backup is refused where any of its files is another, or gone: also a settlement that the store had not taken', async () => {
  mkdirSync(join(path, 'spill'));
  writeFileSync(join(path, 'spill', 'one.json'), '{"amount":1}');
  const backup = storeFolder();
  const { files, transactions } = await writeBackup(path, backup, null);
  expect(Object.keys(files)).toEqual(['backup.db', 'spill/one.json']);
  for (const name of Object.keys(files)) {
    const file = join(backup, name);
    const written = readFileSync(file);
    writeFileSync(file, Buffer.concat([written, Buffer.from(' ')]));
    expect(() => checkBackup(backup)).toThrow(`${name} is not as it was written`);
    rmSync(file);
    expect(() => checkBackup(backup)).toThrow(`${name} is missing`);
    writeFileSync(file, written);
  }
  expect(checkBackup(backup).files).toEqual(files);
  // By its transactions people tell which of two is the newer.
  const { workspace } = await newPlace(store);
  for (const id of ['a', 'b']) done(await store.commit(changeOf(workspace, 1, { puts: [putOf('thing', id, id)] })));
  const newer = storeFolder();
  expect((await writeBackup(path, newer, null)).transactions).toBe(transactions + 2);
  for (const folder of [backup, newer]) rmSync(folder, { recursive: true });
});

test('a backup whose pages are damaged is told when it is put back, also where its digest is right', async () => {
  const place = await newPlace(store);
  await place.commit({ puts: Array.from({ length: 2_000 }, (_, n) => putOf('thing', `${n}`, 'x'.repeat(500))) });
  const backup = storeFolder();
  const content = await writeBackup(path, backup, null);
  const file = join(backup, 'backup.db');
  const bytes = readFileSync(file);
  // Behind the first pages, which say what the file is.
  bytes.fill(0xff, Math.floor(bytes.length / 2), Math.floor(bytes.length / 2) + 64 * 1024);
  writeFileSync(file, bytes);
  const files = { ...content.files, 'backup.db': createHash('sha256').update(bytes).digest('hex') };
  writeFileSync(join(backup, 'backup.json'), JSON.stringify({ ...content, files }));
  expect(checkBackup(backup).files).toEqual(files);
  const folder = storeFolder();
  await expect(unpackBackup(backup, folder)).rejects.toThrow(`The store in the backup ${backup} is damaged`);
  for (const made of [backup, folder]) rmSync(made, { recursive: true });
});

/** As the gateway does with a long journal. */
async function bringIntoFile(): Promise<void> {
  const database = (await loadDriver())(join(path, 'store.db'));
  database.prepare('PRAGMA wal_checkpoint(PASSIVE)').all();
  database.close();
}

/** Bytes of the store that a backup makes, but for how often they were written. */
async function unpacked(backup: string): Promise<Buffer> {
  const folder = storeFolder();
  await unpackBackup(backup, folder);
  const bytes = readFileSync(join(folder, 'store.db'));
  rmSync(folder, { recursive: true });
  return bytes.fill(0, 24, 28).fill(0, 92, 96);
}

/** Which files on the disk hold what a backup is based on, and what changed since. */
function inodes(backup: string): number[] {
  const layers = readdirSync(backup).filter((name) => /^(backup\.db|base\.db|changes-)/.test(name));
  return layers.map((name) => statSync(join(backup, name)).ino);
}

test('a backup that goes on from another makes the same store as a whole one, also when that other is gone', async () => {
  const place = await newPlace(store);
  const fill = async (name: string, rows: number): Promise<void> => {
    const puts = Array.from({ length: rows }, (_, n) => putOf('thing', `${n}-${name}`, 'x'.repeat(1_000)));
    done(await place.commit({ puts }));
  };
  await fill('first', 2_000);
  let previous: string | null = null;
  let wholeAt: number | null = null;
  for (let n = 0; n < 4; n += 1) {
    const folder = storeFolder();
    const { files, transactions, whole_at } = await writeBackup(path, folder, previous);
    // When the last whole one was written: ten minutes after that the next one is.
    wholeAt ??= whole_at;
    expect(whole_at).toBe(wholeAt);
    const changes = Array.from({ length: n }, (_, at) => `changes-${at + 1}`);
    expect(Object.keys(files)).toEqual(n === 0 ? ['backup.db'] : ['base.db', ...changes, 'journal']);
    expect(readdirSync(folder).toSorted()).toEqual(['backup.json', ...Object.keys(files)].toSorted());
    const whole = storeFolder();
    expect(await writeBackup(path, whole, null)).toMatchObject({ transactions });
    // What the one before has is not written again: both have the same files.
    if (previous !== null) expect(inodes(folder)).toEqual(expect.arrayContaining(inodes(previous)));
    expect(checkBackup(folder).files).toEqual(files);
    expect((await unpacked(folder)).equals(await unpacked(whole))).toBe(true);
    for (const gone of previous === null ? [whole] : [whole, previous]) rmSync(gone, { recursive: true });
    await fill(`${n}`, 50);
    if (n !== 1) await bringIntoFile();
    previous = folder;
  }
});

test('a backup is whole where the one before is gone, is none, was whole too long ago, or has more changes than pages', async () => {
  const place = await newPlace(store);
  const fill = async (name: string): Promise<void> => {
    const puts = Array.from({ length: 500 }, (_, n) => putOf('thing', `${n}-${name}`, 'x'.repeat(1_000)));
    done(await place.commit({ puts }));
  };
  const made: string[] = [];
  const namesAfter = async (previous: string): Promise<readonly string[]> => {
    const folder = storeFolder();
    made.push(folder);
    await writeBackup(path, folder, previous);
    return readdirSync(folder).toSorted();
  };
  const [whole, changed] = [
    ['backup.db', 'backup.json'],
    ['backup.json', 'base.db', 'changes-1', 'journal'],
  ];
  await fill('a');
  expect(await namesAfter(join(path, 'none'))).toEqual(whole);
  const [first = ''] = made;
  const content = JSON.parse(readFileSync(join(first, 'backup.json'), 'utf8'));
  for (const [age, expected] of [
    [599_000, changed],
    [600_001, whole],
    [-60_000, whole],
  ] as const) {
    writeFileSync(join(first, 'backup.json'), JSON.stringify({ ...content, whole_at: Date.now() - age }));
    expect(await namesAfter(first)).toEqual(expected);
  }
  writeFileSync(join(first, 'backup.json'), JSON.stringify(content));
  for (const name of ['b', 'c']) await fill(name);
  await bringIntoFile();
  expect(await namesAfter(first)).toEqual(changed);
  const second = made.at(-1) ?? '';
  expect(await namesAfter(second)).toEqual(whole);
  // Cut off, or without what says that it is whole: none.
  truncateSync(join(second, 'changes-1'), 8_190);
  expect(await namesAfter(second)).toEqual(whole);
  rmSync(join(first, 'backup.json'));
  expect(await namesAfter(first)).toEqual(whole);
  for (const folder of made) rmSync(folder, { recursive: true });
});
