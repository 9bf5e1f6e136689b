import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { openStoreFile, STORE_FILE } from './boot.ts';
import { loadDriver, type OpenDatabase, type SqlDatabase } from './driver.ts';
import { describe } from './failure-text.ts';
import { isLocked } from './lock.ts';
import type { StorePlace } from './marks.ts';
import { JOURNAL } from './rewrite.ts';
import { integer, text } from './tables/columns.ts';
import { ensureRowTables, FORMAT_NUMBER, formatOf } from './tables/schema.ts';

/** What a store's file is, and whether a start would open it. */
export type StoredFormat =
  | { readonly state: 'absent'; readonly current: number }
  | { readonly state: 'unusable'; readonly current: number; readonly message: string }
  | {
      readonly state: 'current';
      readonly current: number;
      readonly records: Readonly<Record<string, number>>;
    };

/** Reads the format of a store's file without changing anything in it, even while a gateway runs on it. */
export async function readFormat(place: StorePlace): Promise<StoredFormat> {
  const { path } = place;
  const current = FORMAT_NUMBER;
  if (!existsSync(join(path, STORE_FILE))) return { state: 'absent', current };
  const open = await loadDriver();
  try {
    const database = openToRead(place, open);
    try {
      if (formatOf(database) === 0) throw new Error('store.db is no store of this program');
      ensureRowTables(database);
      return { state: 'current', current, records: countRecords(database) };
    } finally {
      database.close();
    }
  } catch (error) {
    return { state: 'unusable', current, message: describe(path, error) };
  }
}

/** If a crash left a journal, the file is opened as a start opens it, so that nothing is lost. */
function openToRead(place: StorePlace, open: OpenDatabase): SqlDatabase {
  const { path } = place;
  const inUse = existsSync(join(path, 'lock.db')) && isLocked(path, open);
  if (!inUse && existsSync(join(path, JOURNAL))) {
    const opened = openStoreFile(place, open, new Set(), Date.now(), inUse);
    if (opened.kind !== 'open') throw new Error(opened.message);
    return opened.database;
  }
  const database = open(join(path, STORE_FILE));
  database.prepare('PRAGMA busy_timeout = 5000').all();
  database.prepare('PRAGMA query_only = 1').all();
  return database;
}

/** Rows by kind, events, counters. */
function countRecords(database: SqlDatabase): Readonly<Record<string, number>> {
  const count = (sql: string): number => integer(database.prepare(sql).get()?.['count']);
  const kinds = database
    .prepare(
      'SELECT name, sum(count) AS count FROM (SELECT kind, count(*) AS count FROM rows GROUP BY kind) JOIN names ON names.n = kind GROUP BY name ORDER BY name',
    )
    .all()
    .map((row) => [text(row['name']), integer(row['count'])] as const);
  return {
    ...Object.fromEntries(kinds),
    events: count(
      // `seq` has no gaps and begins at 1, so the last one is also the count.
      'SELECT coalesce(sum(seq + size - 1), 0) AS count FROM ledger WHERE (workspace, seq) IN (SELECT workspace, max(seq) FROM ledger GROUP BY workspace)',
    ),
    figures: count('SELECT count(*) AS count FROM figures'),
  };
}
