import { inTransaction, type SqlDatabase } from '../driver.ts';
import { integer } from './columns.ts';

/** Version of the tables below; `PRAGMA user_version` of the file. */
export const FORMAT_NUMBER = 2;

/**
 * The names that callers use (workspaces, kinds, lists) are stored once in `names`; everything else has their numbers.
 * `rows.kind` and `places.list` are such numbers, and they identify the workspace too. A row of `ledger` has the events
 * of all changes of one transaction in one workspace (`ledger.ts`). `mentions` says which of them are about an id. A
 * rolling counter is the sum of its `slots`.
 */
const TABLES = `
CREATE TABLE meta (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  install_id TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  boots INTEGER NOT NULL,
  clock INTEGER NOT NULL,
  commits INTEGER NOT NULL
);
CREATE TABLE names (
  n INTEGER PRIMARY KEY,
  workspace INTEGER NOT NULL,
  type INTEGER NOT NULL,
  name TEXT NOT NULL
);
CREATE UNIQUE INDEX names_name ON names (workspace, type, name);
CREATE TABLE rows (
  n INTEGER PRIMARY KEY,
  kind INTEGER NOT NULL,
  id TEXT NOT NULL,
  version TEXT NOT NULL,
  text TEXT NOT NULL
);
CREATE UNIQUE INDEX rows_id ON rows (kind, id);
CREATE TABLE places (
  list INTEGER NOT NULL,
  at INTEGER NOT NULL,
  id TEXT NOT NULL,
  PRIMARY KEY (list, at, id)
) WITHOUT ROWID;
CREATE TABLE ledger (
  n INTEGER PRIMARY KEY,
  workspace INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  size INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  at INTEGER NOT NULL,
  events TEXT NOT NULL
);
CREATE UNIQUE INDEX ledger_seq ON ledger (workspace, seq);
CREATE TABLE mentions (id TEXT NOT NULL, ledger INTEGER NOT NULL, PRIMARY KEY (id, ledger)) WITHOUT ROWID;
CREATE TABLE figures (
  n INTEGER PRIMARY KEY,
  workspace INTEGER NOT NULL,
  name TEXT NOT NULL,
  grouped TEXT NOT NULL,
  rolling INTEGER,
  text TEXT NOT NULL,
  spent INTEGER NOT NULL,
  held INTEGER NOT NULL,
  ends INTEGER NOT NULL,
  pruned INTEGER NOT NULL
);
CREATE UNIQUE INDEX figures_name ON figures (workspace, name);
CREATE INDEX figures_group ON figures (workspace, grouped);
CREATE INDEX figures_ends ON figures (workspace, ends) WHERE held = 0;
CREATE TABLE slots (figure INTEGER NOT NULL, slot INTEGER NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (figure, slot)) WITHOUT ROWID;
`;

/** Creates the tables if the file has none. @throws Error for a file of another format, or one that is not a store */
export function ensureRowTables(database: SqlDatabase): void {
  const found = formatOf(database);
  if (found === FORMAT_NUMBER) return;
  if (found !== 0) throw new Error(otherFormat(found));
  inTransaction(database, () => {
    // Another process may have been faster.
    if (formatOf(database) !== 0) return;
    if (database.prepare('SELECT 1 AS one FROM sqlite_schema LIMIT 1').get() !== undefined)
      throw new Error('store.db is a database of another program');
    database.exec(TABLES);
    database.exec(`PRAGMA user_version = ${FORMAT_NUMBER}`);
  });
}

/** Number of the format that a file says it has; 0: it has no tables yet. */
export function formatOf(database: SqlDatabase): number {
  return integer(database.prepare('PRAGMA user_version').get()?.['user_version']);
}

function otherFormat(found: number): string {
  if (found < 0) return 'store.db is a backup, which is no store yet: svc restore makes one of it';
  const by =
    found < FORMAT_NUMBER ? 'an earlier version, before the first release' : 'a later version; use that version';
  return `the store has the format ${found}, this program works with ${FORMAT_NUMBER}: it was written by ${by}`;
}
