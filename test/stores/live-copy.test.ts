import { closeSync, copyFileSync, mkdtempSync, openSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { loadDriver, type OpenDatabase, type SqlDatabase } from '../../src/stores/embedded/driver.ts';
import { layered, writeChanges, writeImage } from '../../src/stores/embedded/image.ts';
import { copyJournalAnd, copyLive } from '../../src/stores/embedded/live-copy.ts';

/** What another connection does each time that a part of the copy is on the disk. */
const meanwhile = vi.hoisted(() => ({ run: (): void => {} }));
vi.mock('node:fs', async (load) => {
  const system = await load<typeof import('node:fs')>();
  return {
    ...system,
    fdatasyncSync(descriptor: number): void {
      system.fdatasyncSync(descriptor);
      meanwhile.run();
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
  copyLive(open(file), file, copy);
  expect(statSync(copy).mode & 0o777).toBe(0o600);
  const database = open(copy);
  try {
    expect(database.prepare('PRAGMA integrity_check').all()).toEqual([{ integrity_check: 'ok' }]);
    return database.prepare('SELECT sum(units) AS units FROM accounts').get()?.['units'];
  } finally {
    database.close();
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

/** Uses what a whole copy and the changes since make up. */
function withLayers<T>(files: readonly string[], use: (image: ReturnType<typeof layered>) => T): T {
  const opened = files.map((name) => openSync(name, 'r'));
  try {
    const [base = -1, ...changes] = opened;
    return use(layered(base, changes));
  } finally {
    opened.forEach((descriptor) => closeSync(descriptor));
  }
}

/** The bytes of a copied file once SQLite has brought its journal into it. */
function broughtIn(copy: string, journal: string): Buffer {
  copyFileSync(journal, `${copy}-wal`);
  const database = open(copy);
  expect(database.prepare('PRAGMA integrity_check').all()).toEqual([{ integrity_check: 'ok' }]);
  database.prepare('PRAGMA journal_mode = DELETE').all();
  database.close();
  const bytes = readFileSync(copy);
  rmSync(copy);
  return bytes;
}

it('changes make up what a whole copy has, byte by byte: also where the file grew, shrank or was written meanwhile', () => {
  const at = (name: string): string => join(folder, name);
  const steps: readonly (() => void)[] = [
    () => moveUnits(1),
    () => undefined,
    () => writer.exec('DELETE FROM accounts WHERE id >= 4000; PRAGMA incremental_vacuum'),
    () => moveUnits(200),
    bringIntoFile,
    () => writer.exec('INSERT INTO accounts SELECT id + 4000, 0, hex(randomblob(900)) FROM accounts LIMIT 1500'),
    () => writer.exec('VACUUM'),
    bringIntoFile,
  ];
  writer.exec(`PRAGMA auto_vacuum = INCREMENTAL; VACUUM`);
  bringIntoFile();
  const chain = [at('base')];
  copyJournalAnd(open(file), file, at('journal'), (source) => writeImage(layered(source, []), at('base')));
  for (const [n, step] of steps.entries()) {
    step();
    const changes = at(`changes-${n}`);
    withLayers(chain, (image) =>
      copyJournalAnd(open(file), file, at('journal'), (source) => {
        const between = (): void => {
          moveUnits(2);
          bringIntoFile();
        };
        if (n % 2 === 0) between();
        writeChanges(source, image, changes);
        if (n % 2 === 1) between();
        writeImage(layered(source, []), at('whole'));
      }),
    );
    chain.push(changes);
    withLayers(chain, (image) => writeImage(image, at('again')));
    expect(broughtIn(at('again'), at('journal')).equals(broughtIn(at('whole'), at('journal')))).toBe(true);
  }
  // A transaction that was not in the file yet changes nothing there, but that it has as many pages.
  expect(statSync(at('changes-1')).size).toBeLessThan(statSync(at('base')).size / 5);
});
