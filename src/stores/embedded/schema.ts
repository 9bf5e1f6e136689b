import type { SqlDatabase } from './driver.ts';
import { integer, text } from './document.ts';

/** Version of the tables below; `PRAGMA user_version` of the file. */
const SCHEMA_VERSION = 1;

/**
 * An effect is a row of `effects`: what was asked for, on what terms, and the attempt while it executes. What has become
 * of it otherwise is a row of `lives`, so that settling adds a row and leaves the other as it is; what executes stands in
 * `running`. One ledger row per transaction and workspace; `ledger` names the row with the events of the step that made the
 * effect's row, or its life, and `mentions` the others. `effects.key` is the idempotency key while it is bound to the row, else NULL.
 * `lives.at` is the time at which it was settled, `running.ends` the end of the lease.
 * `tallies` are budget rows and rates; a rolling one is the sum of its `slots`.
 */
const TABLES = `
CREATE TABLE meta (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  install_id TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  boots INTEGER NOT NULL,
  clock INTEGER NOT NULL,
  commits INTEGER NOT NULL,
  policy TEXT NOT NULL
);
CREATE TABLE effects (
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  workspace TEXT NOT NULL,
  key TEXT,
  tool TEXT NOT NULL,
  agent TEXT NOT NULL,
  created INTEGER NOT NULL,
  call TEXT NOT NULL,
  terms TEXT NOT NULL,
  life TEXT NOT NULL,
  ledger INTEGER
);
CREATE UNIQUE INDEX effects_id ON effects (id);
CREATE UNIQUE INDEX effects_key ON effects (key, workspace) WHERE key IS NOT NULL;
CREATE INDEX effects_list ON effects (workspace, created, agent, tool);
CREATE TABLE lives (
  n INTEGER PRIMARY KEY,
  state TEXT NOT NULL,
  decision TEXT NOT NULL,
  at INTEGER NOT NULL,
  life TEXT NOT NULL,
  outcome TEXT,
  ledger INTEGER
);
CREATE INDEX lives_state ON lives (state, at);
CREATE TABLE running (n INTEGER PRIMARY KEY, ends INTEGER NOT NULL, admitted INTEGER NOT NULL);
CREATE TABLE ledger (
  n INTEGER PRIMARY KEY,
  workspace TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  size INTEGER NOT NULL,
  at INTEGER NOT NULL,
  events TEXT NOT NULL
);
CREATE UNIQUE INDEX ledger_seq ON ledger (workspace, seq);
CREATE TABLE mentions (effect TEXT NOT NULL, ledger INTEGER NOT NULL, PRIMARY KEY (effect, ledger)) WITHOUT ROWID;
CREATE TABLE approvals (
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  workspace TEXT NOT NULL,
  effect TEXT NOT NULL,
  agent TEXT NOT NULL,
  status TEXT NOT NULL,
  expires INTEGER NOT NULL,
  doc TEXT NOT NULL
);
CREATE UNIQUE INDEX approvals_id ON approvals (workspace, id);
CREATE INDEX approvals_effect ON approvals (effect);
CREATE INDEX approvals_status ON approvals (status, expires);
CREATE TABLE rejections (
  workspace TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  effect TEXT NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (workspace, fingerprint)
) WITHOUT ROWID;
CREATE TABLE claims (
  workspace TEXT NOT NULL,
  target TEXT NOT NULL,
  id TEXT NOT NULL,
  agent TEXT NOT NULL,
  running INTEGER NOT NULL,
  until INTEGER NOT NULL,
  doc TEXT NOT NULL,
  PRIMARY KEY (workspace, target)
) WITHOUT ROWID;
CREATE INDEX claims_id ON claims (id);
CREATE INDEX claims_agent ON claims (workspace, agent);
CREATE TABLE reservations (
  workspace TEXT NOT NULL,
  id TEXT NOT NULL,
  pool TEXT NOT NULL,
  until INTEGER NOT NULL,
  doc TEXT NOT NULL,
  PRIMARY KEY (workspace, id)
) WITHOUT ROWID;
CREATE INDEX reservations_pool ON reservations (workspace, pool);
CREATE TABLE uses (
  workspace TEXT NOT NULL,
  effect TEXT NOT NULL,
  pool TEXT NOT NULL,
  until INTEGER,
  doc TEXT NOT NULL,
  PRIMARY KEY (workspace, effect, pool)
) WITHOUT ROWID;
CREATE INDEX uses_pool ON uses (workspace, pool);
CREATE TABLE pauses (
  workspace TEXT NOT NULL,
  id TEXT NOT NULL,
  until INTEGER,
  doc TEXT NOT NULL,
  PRIMARY KEY (workspace, id)
) WITHOUT ROWID;
CREATE TABLE pause_versions (workspace TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tallies (
  n INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,
  budget TEXT NOT NULL,
  doc TEXT NOT NULL,
  ceiling INTEGER NOT NULL,
  spent INTEGER NOT NULL,
  held INTEGER NOT NULL,
  ends INTEGER NOT NULL,
  pruned INTEGER NOT NULL
);
CREATE UNIQUE INDEX tallies_name ON tallies (workspace, name);
CREATE INDEX tallies_budget ON tallies (workspace, kind, budget);
CREATE INDEX tallies_ends ON tallies (ends) WHERE held = 0;
CREATE TABLE slots (tally INTEGER NOT NULL, slot INTEGER NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (tally, slot)) WITHOUT ROWID;
CREATE TABLE budget_definitions (budget TEXT PRIMARY KEY, unit TEXT NOT NULL, window TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE keys (id TEXT PRIMARY KEY, handle TEXT NOT NULL UNIQUE, owner TEXT, doc TEXT NOT NULL);
CREATE TABLE workspaces (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE agents (workspace TEXT NOT NULL, id TEXT NOT NULL, doc TEXT NOT NULL, PRIMARY KEY (workspace, id)) WITHOUT ROWID;
`;

/** Tables and indexes that came later: made in a file that has not got them. */
const ADDED = `
CREATE TABLE secret (one INTEGER PRIMARY KEY CHECK (one = 1), mark TEXT NOT NULL);
CREATE TABLE users (id TEXT PRIMARY KEY, since INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX claims_key ON claims (workspace, json_extract(doc, '$.keyId'));
CREATE INDEX reservations_key ON reservations (workspace, json_extract(doc, '$.keyId'));
`;

/** Settings of a connection: durable on commit, readers beside the writer, a short wait for another writer. */
export function configureConnection(database: SqlDatabase): void {
  database.prepare('PRAGMA busy_timeout = 5000').all();
  database.prepare('PRAGMA page_size = 8192').all();
  database.prepare('PRAGMA journal_mode = WAL').all();
  database.prepare('PRAGMA synchronous = FULL').all();
  database.prepare('PRAGMA cache_size = -32768').all();
  database.prepare('PRAGMA wal_autocheckpoint = 4000').all();
}

/**
 * Makes the tables where the file has none.
 * @returns whether they were made
 * @throws Error for a file whose tables are not those of this version, or that is no store
 */
export function ensureSchema(database: SqlDatabase): boolean {
  const version = integer(database.prepare('PRAGMA user_version').get()?.['user_version']);
  if (version === SCHEMA_VERSION) {
    requireTables(database);
    addTables(database);
    return false;
  }
  if (version !== 0) {
    throw new Error(
      `the store has the format ${version}, this program knows ${SCHEMA_VERSION}: it was written by a later version; use that version`,
    );
  }
  database.exec('BEGIN IMMEDIATE');
  try {
    // Another process (`svc keys create`) may have been faster.
    const raced = integer(database.prepare('PRAGMA user_version').get()?.['user_version']) === SCHEMA_VERSION;
    if (!raced) {
      if (definitionsIn(database).size > 0) throw new Error('store.db is a database of another program');
      database.exec(TABLES);
      database.exec(ADDED);
      database.exec(`PRAGMA user_version = ${SCHEMA_VERSION}`);
    }
    database.exec('COMMIT');
    return !raced;
  } catch (error) {
    database.exec('ROLLBACK');
    throw error;
  }
}

/** A file of an earlier version gets what it lacks; nothing that is there is changed. */
function addTables(database: SqlDatabase): void {
  const lacking = (): readonly string[] => {
    const found = definitionsIn(database);
    return ADDED.split(';')
      .map(onOneLine)
      .filter((definition) => definition !== '' && !found.has(definition));
  };
  if (lacking().length === 0) return;
  database.exec('BEGIN IMMEDIATE');
  try {
    // Another process may have been faster.
    for (const definition of lacking()) database.exec(definition);
    database.exec('COMMIT');
  } catch (error) {
    database.exec('ROLLBACK');
    throw error;
  }
}

/** The format's number changes with releases only: between them the definitions themselves tell versions apart. */
function requireTables(database: SqlDatabase): void {
  const found = definitionsIn(database);
  const wanted = TABLES.split(';').map(onOneLine);
  const differing = wanted.find((definition) => definition !== '' && !found.has(definition));
  if (differing === undefined) return;
  const name = /^CREATE (?:TABLE|(?:UNIQUE )?INDEX) (\w+)/.exec(differing)?.[1] ?? '';
  throw new Error(
    `it was written by another version of this program (its '${name}' is not the one of this version). Use that version; or, to begin with an empty store, move the whole folder away (what ran, its receipts, budgets and keys stay behind in it)`,
  );
}

/** SQLite keeps definitions as they were written. */
function definitionsIn(database: SqlDatabase): ReadonlySet<string> {
  return new Set(
    database
      .prepare('SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL')
      .all()
      .map((row) => onOneLine(text(row['sql']))),
  );
}

function onOneLine(definition: string): string {
  return definition.replaceAll(/\s+/g, ' ').trim();
}
