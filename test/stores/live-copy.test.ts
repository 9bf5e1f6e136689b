import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { loadDriver, type OpenDatabase, type SqlDatabase } from '../../src/stores/embedded/driver.ts';
import {
  type Image,
  imageOf,
  layOver,
  type NewerPages,
  writeChanges,
  writeWhole,
} from '../../src/stores/embedded/image.ts';
import { readLive } from '../../src/stores/embedded/live-copy.ts';

/** What another connection does each time that a part of the copy is on the disk, or of the journal's copy is written. */
const meanwhile = vi.hoisted(() => ({ run: (): void => {} }));
vi.mock('node:fs', async (load) => {
  const system = await load<typeof import('node:fs')>();
  return {
    ...system,
    fdatasyncSync(descriptor: number): void {
      system.fdatasyncSync(descriptor);
      meanwhile.run();
    },
    writeSync(...asked: Parameters<typeof system.writeSync>): number {
      const written = system.writeSync(...asked);
      meanwhile.run();
      return written;
    },
  };
});

const ACCOUNTS = 6_000;
/** Units of each account at first. */
const UNITS = 100;

let folder: string;
let file: string;
let open: OpenDatabase;
let writer: SqlDatabase;
let moved = 0;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'svc-live-copy-'));
  file = join(folder, 'store.db');
  open = await loadDriver();
  writer = open(file);
  writer.exec(
    `PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0;
     CREATE TABLE accounts (id INTEGER PRIMARY KEY, units INTEGER, filling TEXT);
     WITH RECURSIVE n (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < ${ACCOUNTS - 1})
     INSERT INTO accounts SELECT id, ${UNITS}, hex(zeroblob(500)) FROM n`,
  );
});
afterEach(() => {
  meanwhile.run = () => {};
  writer.close();
  rmSync(folder, { recursive: true });
});

/** Moves units between accounts on pages far from each other: what mixes two moments has another sum. */
function moveUnits(transactions: number): void {
  const move = writer.prepare('UPDATE accounts SET units = units + ? WHERE id = ?');
  for (let transaction = 0; transaction < transactions; transaction += 1) {
    writer.exec('BEGIN IMMEDIATE');
    for (const end = moved + 30; moved < end; moved += 1) {
      move.run(1, (moved * 7_919) % ACCOUNTS);
      move.run(-1, (moved * 104_729 + 1) % ACCOUNTS);
    }
    writer.exec('COMMIT');
  }
}

const bringIntoFile = (): void => void writer.prepare('PRAGMA wal_checkpoint(PASSIVE)').all();

function sumOfCopy(): unknown {
  const copy = join(folder, 'copy.db');
  readLive(open(file), file, join(folder, 'scratch'), (image) => writeWhole(image, copy));
  expect(statSync(copy).mode & 0o777).toBe(0o600);
  const database = open(copy);
  try {
    expect(database.prepare('PRAGMA integrity_check').all()).toEqual([{ integrity_check: 'ok' }]);
    return database.prepare('SELECT sum(units) AS units FROM accounts').get()?.['units'];
  } finally {
    database.close();
    rmSync(copy);
  }
}

it('what stands in the journal only is in the copy', () => {
  writer.exec('UPDATE accounts SET units = 7');
  expect(sumOfCopy()).toBe(ACCOUNTS * 7);
});

it('a file that is written while it is copied gives one moment of it', () => {
  moveUnits(5);
  meanwhile.run = () => {
    moveUnits(20);
    bringIntoFile();
  };
  expect(sumOfCopy()).toBe(ACCOUNTS * UNITS);
});

it('a journal that is begun anew while it is copied gives one moment', () => {
  moveUnits(60);
  // Nothing of the journal is needed, and who writes next begins it anew.
  bringIntoFile();
  let parts = 0;
  meanwhile.run = () => {
    parts += 1;
    if (parts === 1) moveUnits(30);
  };
  expect(sumOfCopy()).toBe(ACCOUNTS * UNITS);
});

it('a transaction whose last frame is not whole in the journal is not in the copy', () => {
  moveUnits(3);
  writer.exec('UPDATE accounts SET units = units + 1');
  expect(sumOfCopy()).toBe(ACCOUNTS * (UNITS + 1));
  const journal = openSync(`${file}-wal`, 'r+');
  const { size } = statSync(`${file}-wal`);
  writeSync(journal, Buffer.from([1, 2, 3]), 0, 3, size - 100);
  closeSync(journal);
  expect(sumOfCopy()).toBe(ACCOUNTS * UNITS);
});

/** Uses the image that a whole copy and the changes since make up. */
function withChain<T>(files: readonly string[], use: (image: Image) => T): T {
  const opened = files.map((name) => openSync(name, 'r'));
  try {
    const [base = -1, ...changes] = opened;
    const newer: NewerPages = new Map();
    const { size } = statSync(files[0] ?? '');
    const pages = changes.reduce((_, descriptor) => layOver(newer, descriptor, 4_096), size / 4_096);
    return use(imageOf(base, 4_096, pages, newer));
  } finally {
    opened.forEach(closeSync);
  }
}

it('what changed is what a whole copy of the same moment has, byte by byte: also what grew, shrank and was written meanwhile', () => {
  const chain = [join(folder, 'base')];
  const [whole, again] = [join(folder, 'whole'), join(folder, 'again')];
  const steps: readonly (() => void)[] = [
    () => moveUnits(1),
    () => undefined,
    () => writer.exec('DELETE FROM accounts WHERE id >= 4000; PRAGMA incremental_vacuum'),
    () => moveUnits(200),
    () => writer.exec('INSERT INTO accounts SELECT id + 4000, 0, hex(randomblob(900)) FROM accounts'),
    () => writer.exec('VACUUM'),
    bringIntoFile,
    () => writer.exec('DELETE FROM accounts WHERE id % 3 = 0'),
  ];
  writer.exec('PRAGMA auto_vacuum = INCREMENTAL; VACUUM');
  readLive(open(file), file, join(folder, 'scratch'), (image) => writeWhole(image, chain[0] ?? ''));
  const changed = steps.map((step, n) => {
    step();
    meanwhile.run = () => {
      meanwhile.run = () => {};
      moveUnits(2);
      if (n % 2 === 0) bringIntoFile();
    };
    const changes = join(folder, `changes-${n}`);
    withChain(chain, (earlier) =>
      readLive(open(file), file, join(folder, 'scratch'), (image) => {
        writeChanges(image, earlier, changes);
        writeWhole(image, whole);
      }),
    );
    chain.push(changes);
    withChain(chain, (image) => writeWhole(image, again));
    expect(readFileSync(again).equals(readFileSync(whole))).toBe(true);
    const { size } = statSync(whole);
    for (const made of [whole, again]) rmSync(made);
    return statSync(changes).size / size;
  });
  // One transaction changes little, and of what did not change at all only the end of the file is written.
  expect(changed[0]).toBeLessThan(0.1);
  expect(Math.max(...changed)).toBeGreaterThan(0.5);
});

it('an image lacks a page only where SQLite has its locks, in the page behind one gigabyte', () => {
  const sparse = join(folder, 'sparse');
  const descriptor = openSync(sparse, 'w+');
  const lock = 2 ** 30 / 8_192;
  const part = Buffer.alloc(16_384);
  try {
    ftruncateSync(descriptor, 2 ** 30);
    const behind = new Map([[lock + 1, { descriptor, at: 0 }]]);
    expect(imageOf(descriptor, 8_192, lock + 2, behind).read(lock, part)).toBe(16_384);
    expect(() => imageOf(descriptor, 8_192, lock + 3, behind).read(lock + 1, part)).toThrow(
      '131075 of 131075 is missing',
    );
    expect(() => imageOf(descriptor, 4_096, lock * 2 - 1, new Map()).read(0, part)).not.toThrow();
  } finally {
    closeSync(descriptor);
  }
});
