import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  isSyncFailure,
  loadDriver,
  SQLITE_BUSY,
  SQLITE_NOTADB,
  type SqlDatabase,
  storageFailure,
} from '../../src/stores/embedded/driver.ts';
import { acquireLock, isLocked } from '../../src/stores/embedded/lock.ts';

const open = await loadDriver();
let folder = '';
let opened: SqlDatabase[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-driver-'));
});
afterEach(() => {
  for (const database of opened) database.close();
  opened = [];
  rmSync(folder, { recursive: true });
});

function connect(): SqlDatabase {
  const database = open(join(folder, 'test.db'));
  opened.push(database);
  return database;
}

function failureOf(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error;
  }
  throw new Error('it did not fail');
}

/** What the embedded store relies on, of the driver of the Node that runs this. */
describe('the SQLite driver', () => {
  it('keeps another writer out from BEGIN IMMEDIATE on, and says that the file is busy', () => {
    const [first, second] = [connect(), connect()];
    first.exec('PRAGMA journal_mode = WAL; CREATE TABLE t (a)');
    first.exec('BEGIN IMMEDIATE');
    const error = failureOf(() => second.exec('BEGIN IMMEDIATE'));
    expect(storageFailure(error)).toBe(SQLITE_BUSY);
    expect(isSyncFailure(error)).toBe(false);
    first.exec('COMMIT');
    second.exec('BEGIN IMMEDIATE; ROLLBACK');
  });

  it('waits for another writer as long as busy_timeout says', () => {
    const [first, second] = [connect(), connect()];
    first.exec('BEGIN EXCLUSIVE');
    second.prepare('PRAGMA busy_timeout = 200').all();
    const begun = performance.now();
    expect(storageFailure(failureOf(() => second.exec('BEGIN IMMEDIATE')))).toBe(SQLITE_BUSY);
    expect(performance.now() - begun).toBeGreaterThan(150);
  });

  it('shows in data_version what another connection wrote, and not what it wrote itself', () => {
    const [first, second] = [connect(), connect()];
    first.exec('PRAGMA journal_mode = WAL; CREATE TABLE t (a)');
    const version = first.prepare('PRAGMA data_version');
    const before = version.get()?.['data_version'];
    first.exec('INSERT INTO t VALUES (1)');
    expect(version.get()?.['data_version']).toBe(before);
    second.exec('INSERT INTO t VALUES (2)');
    expect(version.get()?.['data_version']).not.toBe(before);
  });

  it('has a code for a file that is no database, for one that cannot be opened, and none for a broken constraint', () => {
    writeFileSync(join(folder, 'test.db'), 'x'.repeat(4096));
    expect(storageFailure(failureOf(() => connect().exec('CREATE TABLE t (a)')))).toBe(SQLITE_NOTADB);
    expect(storageFailure(failureOf(() => open(join(folder, 'nowhere', 'test.db'))))).toBe(14);
    rmSync(join(folder, 'test.db'));
    const database = connect();
    database.exec('CREATE TABLE t (a UNIQUE); INSERT INTO t VALUES (1)');
    const error = failureOf(() => database.prepare('INSERT INTO t VALUES (?)').run(1));
    expect(error).toMatchObject({ errcode: 2067 });
    expect(storageFailure(error)).toBeNull();
  });

  it('runs a statement with the values of this time, whichever way it ran before', () => {
    const ways = ['run', 'get', 'all'] as const;
    for (const first of ways) {
      for (const second of ways) {
        const database = connect();
        database.exec("CREATE TABLE t (a, b); INSERT INTO t VALUES ('p', 1), ('q', 2)");
        const select = database.prepare('SELECT b FROM t WHERE a = ?');
        select[first]('p');
        if (second !== 'run') expect([select[second]('q')].flat(), `${first}, then ${second}`).toEqual([{ b: 2 }]);
        const update = database.prepare('UPDATE t SET b = 9 WHERE a = ? RETURNING a');
        update[first]('p');
        update[second]('q');
        expect(database.prepare('SELECT b FROM t').all(), `${first}, then ${second}`).toEqual([{ b: 9 }, { b: 9 }]);
        database.exec('DROP TABLE t');
      }
    }
  });

  it('lets go of a file that it closes, also with statements that were not run to their end', () => {
    const [first, second] = [connect(), connect()];
    first.exec('CREATE TABLE t (a); INSERT INTO t VALUES (1), (2)');
    first.prepare('SELECT a FROM t').get();
    first.exec('BEGIN EXCLUSIVE');
    first.close();
    opened = [second];
    second.exec('BEGIN EXCLUSIVE; ROLLBACK');
  });

  it('has a code for what fails in all() as well', () => {
    const [first, second] = [connect(), connect()];
    first.exec('CREATE TABLE t (a)');
    first.exec('BEGIN EXCLUSIVE');
    const statement = second.prepare('PRAGMA user_version');
    expect(storageFailure(failureOf(() => statement.all()))).toBe(SQLITE_BUSY);
    expect(storageFailure(failureOf(() => statement.get()))).toBe(SQLITE_BUSY);
  });

  it('numbers and texts come back as they were', () => {
    const statement = connect().prepare('SELECT ? AS a, ? AS b, ? AS c, ? AS d');
    expect(statement.get(Number.MAX_SAFE_INTEGER, 'é👩‍💻', null, '')).toEqual({
      a: Number.MAX_SAFE_INTEGER,
      b: 'é👩‍💻',
      c: null,
      d: '',
    });
  });
});

describe('the lock of a store', () => {
  it('is had by one; another waits for as long as it is told to, and says so', async () => {
    const first = await acquireLock(folder, open, 0);
    expect(isLocked(folder, open)).toBe(true);
    await expect(acquireLock(folder, open, 60)).rejects.toThrow(
      `Another gateway uses the store in ${folder} (waited 0.06 s for its lock)`,
    );
    const waiting = acquireLock(folder, open, 60_000);
    // It has been tried once, in vain.
    first.release();
    const second = await waiting;
    expect(isLocked(folder, open)).toBe(true);
    second.release();
    expect(isLocked(folder, open)).toBe(false);
  });
});
