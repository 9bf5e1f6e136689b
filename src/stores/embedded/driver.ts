/**
 * The only SQL interface of this store: that of `node:sqlite`, which Node has since 22.13. On Node 20 the package
 * `@photostructure/sqlite` replaces it. It is built from the same source and has the same names, errors and rows.
 */

export type SqlValue = string | number | null;

export type SqlRow = Readonly<Record<string, SqlValue>>;

/**
 * The SQL text marks values by question marks without names. Bound texts have no NUL, at which the package would cut them
 * (`columnText` escapes it).
 */
export interface SqlStatement {
  /** Runs a statement that changes rows; returns the rowid of the last inserted row. */
  run(...values: SqlValue[]): number;
  get(...values: SqlValue[]): SqlRow | undefined;
  all(...values: SqlValue[]): readonly SqlRow[];
}

export interface SqlDatabase {
  prepare(sql: string): SqlStatement;
  /** Runs statements without values and without rows. */
  exec(sql: string): void;
  /** Closes the connection with its statements, and the file. */
  close(): void;
}

/** Opens a database file; creates it where it is absent. Throws the driver's error, see {@link storageFailure}. */
export type OpenDatabase = (file: string) => SqlDatabase;

/** Primary result codes of SQLite that this store handles differently. */
export const SQLITE_BUSY = 5;
export const SQLITE_CORRUPT = 11;
export const SQLITE_FULL = 13;
export const SQLITE_NOTADB = 26;

const SQLITE_LOCKED = 6;
const SQLITE_NOMEM = 7;
export const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;
const SQLITE_CANTOPEN = 14;
const SQLITE_PROTOCOL = 15;

/** Errors of the file or the machine, not of the statement. */
const STORAGE_CODES: ReadonlySet<number> = new Set([
  SQLITE_BUSY,
  SQLITE_LOCKED,
  SQLITE_NOMEM,
  SQLITE_READONLY,
  SQLITE_IOERR,
  SQLITE_CORRUPT,
  SQLITE_FULL,
  SQLITE_CANTOPEN,
  SQLITE_PROTOCOL,
  SQLITE_NOTADB,
]);

/**
 * The primary result code of SQLite if an error of the driver means that storage failed (busy, full, an I/O error, a
 * damaged file, …). `null` for any other error, which is a fault of the step: a broken constraint, for example.
 */
export function storageFailure(error: unknown): number | null {
  const extended = resultCode(error);
  if (extended === null) return null;
  const primary = extended & 0xff;
  return STORAGE_CODES.has(primary) ? primary : null;
}

/** The extended result code of SQLite behind an error of the driver. */
function resultCode(error: unknown): number | null {
  if (typeof error !== 'object' || error === null) return null;
  const extended = 'errcode' in error ? error.errcode : null;
  return typeof extended === 'number' ? extended : null;
}

/** The primary code for I/O errors, and the extended ones for a failed sync of the file and of its folder. */
const SYNC_CODES: ReadonlySet<number> = new Set([SQLITE_IOERR, SQLITE_IOERR | (4 << 8), SQLITE_IOERR | (5 << 8)]);

/** Whether SQLite could not sync. What it wrote may or may not be on the disk. */
export function isSyncFailure(error: unknown): boolean {
  const code = resultCode(error);
  return code !== null && SYNC_CODES.has(code);
}

const SQLITE_CONSTRAINT = 19;

/** Whether a write broke a constraint of its table, which is a fault of the program. */
export function isConstraintFailure(error: unknown): boolean {
  const extended = resultCode(error);
  return extended !== null && (extended & 0xff) === SQLITE_CONSTRAINT;
}

/** What is used of both modules; the types of Node 20 do not know `node:sqlite`. */
interface SqliteModule {
  readonly DatabaseSync: new (file: string) => Connection;
}
interface Connection {
  prepare(sql: string): {
    run(...values: SqlValue[]): { readonly lastInsertRowid: number | bigint };
    get(...values: SqlValue[]): SqlRow | undefined;
    all(...values: SqlValue[]): readonly SqlRow[];
  };
  exec(sql: string): void;
  close(): void;
}

export async function loadDriver(): Promise<OpenDatabase> {
  const builtin = loadBuiltin();
  if (builtin !== null) return openWith(builtin);
  const standIn: unknown = await import('@photostructure/sqlite');
  if (!isSqliteModule(standIn)) throw new Error('@photostructure/sqlite is not the package that this store knows.');
  return openWith(standIn);
}

function isSqliteModule(module: unknown): module is SqliteModule {
  return typeof module === 'object' && module !== null && 'DatabaseSync' in module;
}

/** Loading it prints a warning that it is experimental. It must not reach standard error, which has only JSON lines. */
function loadBuiltin(): SqliteModule | null {
  const emitWarning = process.emitWarning;
  process.emitWarning = () => {};
  try {
    const module: unknown = process.getBuiltinModule('node:sqlite');
    return isSqliteModule(module) ? module : null;
  } finally {
    process.emitWarning = emitWarning;
  }
}

function openWith({ DatabaseSync }: SqliteModule): OpenDatabase {
  return (file) => {
    const connection = new DatabaseSync(file);
    return {
      prepare(sql) {
        const statement = connection.prepare(sql);
        return {
          run: (...values) => Number(statement.run(...values).lastInsertRowid),
          get: (...values) => statement.get(...values),
          all: (...values) => statement.all(...values),
        };
      },
      exec: (sql) => connection.exec(sql),
      close: () => connection.close(),
    };
  };
}

/** How many rows one statement writes. The largest size that fits is used. */
const SIZES = [32, 8, 4, 2, 1];

/**
 * Writes many rows with few statements, because a call of the driver costs as much as a row. Name what a conflict does
 * (`OR ROLLBACK`, `OR IGNORE`): a statement of many rows that may be undone by itself, as by default, copies each page that
 * it changes into a file beside the journal first.
 * @param before the statement before its rows
 * @param row with a `?` for each column
 * @param between two rows
 */
export function bulk(database: SqlDatabase, before: string, row: string, between = ', ') {
  const columns = row.split('?').length - 1;
  const statements: readonly (readonly [number, SqlStatement])[] = SIZES.map((size) => [
    size * columns,
    database.prepare(`${before} ${Array.from({ length: size }, () => row).join(between)}`),
  ]);
  let gathered: SqlValue[] = [];
  return {
    /** The columns of one more row. */
    add(...values: readonly SqlValue[]): void {
      for (const value of values) gathered.push(value);
    },
    flush(): void {
      if (gathered.length === 0) return;
      let at = 0;
      for (const [size, statement] of statements)
        for (; gathered.length - at >= size; at += size) statement.run(...gathered.slice(at, at + size));
      gathered = [];
    },
    forget(): void {
      gathered = [];
    },
  };
}

/** Settings of a connection: durable on commit, readers in parallel to the writer, a short wait for another writer. */
export function configureConnection(database: SqlDatabase): void {
  database.prepare('PRAGMA busy_timeout = 5000').all();
  database.prepare('PRAGMA page_size = 8192').all();
  // A file that has no page yet will give back empty ones. Said of one that does already, it would be written each time.
  if (database.prepare('PRAGMA page_count').get()?.['page_count'] === 0)
    database.prepare('PRAGMA auto_vacuum = INCREMENTAL').all();
  database.prepare('PRAGMA journal_mode = WAL').all();
  database.prepare('PRAGMA synchronous = FULL').all();
  database.prepare('PRAGMA cache_size = -32768').all();
  database.prepare('PRAGMA wal_autocheckpoint = 4000').all();
}

/** Ends a transaction without its writes. After some errors SQLite has already done so. */
export function rollback(database: SqlDatabase): void {
  try {
    database.exec('ROLLBACK');
  } catch {
    // No transaction is open any more, as wanted.
  }
}

/**
 * Settings of a connection that only reads, beside the one that writes: it cannot write and never waits for the other.
 * @returns the connection
 */
export function configureReader(database: SqlDatabase): SqlDatabase {
  database.prepare('PRAGMA busy_timeout = 5000').all();
  database.prepare('PRAGMA query_only = 1').all();
  database.prepare('PRAGMA cache_size = -8192').all();
  return database;
}

/** Runs `read` on one state of the database. */
export function onOneState<T>(database: SqlDatabase, read: () => T): T {
  database.exec('BEGIN');
  try {
    return read();
  } finally {
    rollback(database);
  }
}

/** Runs `work` in a transaction, which writes all or nothing. */
export function inTransaction<T>(database: SqlDatabase, work: () => T): T {
  database.exec('BEGIN IMMEDIATE');
  try {
    const result = work();
    database.exec('COMMIT');
    return result;
  } catch (error) {
    rollback(database);
    throw error;
  }
}
