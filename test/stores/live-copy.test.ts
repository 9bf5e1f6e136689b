import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { loadDriver, type OpenDatabase, type SqlDatabase } from '../../src/stores/embedded/driver.ts';
import { copyLive } from '../../src/stores/embedded/live-copy.ts';

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
