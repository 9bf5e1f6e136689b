/**
 * The one SQL interface of this store, over two drivers: `node:sqlite` where Node has it (22.13 and later), `libsql`
 * elsewhere. Both are synchronous. Rows are read by column name (libsql adds a member of its own to rows).
 */

export type SqlValue = string | number | null;

export type SqlRow = Readonly<Record<string, SqlValue>>;

export interface SqlStatement {
  /** Runs a statement that changes rows; answers with the rowid of the last row inserted. */
  run(...values: SqlValue[]): number;
  get(...values: SqlValue[]): SqlRow | undefined;
  all(...values: SqlValue[]): readonly SqlRow[];
}

export interface SqlDatabase {
  prepare(sql: string): SqlStatement;
  /** Runs statements without values and without rows. */
  exec(sql: string): void;
  /** Ends the connection. `libsql` lets go of the file only when the statements are collected. */
  close(): void;
}

/** Opens a database file; creates it where it is absent. Throws the driver's error, see {@link storageFailure}. */
export type OpenDatabase = (file: string) => SqlDatabase;

/** Primary result codes of SQLite that this store tells apart. */
export const SQLITE_BUSY = 5;
export const SQLITE_CORRUPT = 11;
export const SQLITE_FULL = 13;
export const SQLITE_NOTADB = 26;

const SQLITE_LOCKED = 6;
const SQLITE_NOMEM = 7;
const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;
const SQLITE_CANTOPEN = 14;
const SQLITE_PROTOCOL = 15;

/** What says that the file or the machine failed, and not the statement. */
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
 * The primary result code of SQLite behind an error of either driver where storage failed (busy, full, an I/O error,
 * a damaged file, …); `null` for any other error, which is a fault of the step: a broken constraint, for example.
 */
export function storageFailure(error: unknown): number | null {
  const extended = resultCode(error);
  if (extended === null) return null;
  const primary = extended & 0xff;
  return STORAGE_CODES.has(primary) ? primary : null;
}

/** The extended result code of SQLite behind an error of either driver. */
function resultCode(error: unknown): number | null {
  if (typeof error !== 'object' || error === null) return null;
  const extended = 'errcode' in error ? error.errcode : 'rawCode' in error ? error.rawCode : null;
  return typeof extended === 'number' ? extended : null;
}

/** Primary code of an error of the file, and those of its kinds that say that a sync failed: of the file, of its folder. */
const SYNC_CODES: ReadonlySet<number> = new Set([SQLITE_IOERR, SQLITE_IOERR | (4 << 8), SQLITE_IOERR | (5 << 8)]);

/** Whether SQLite could not sync: what it wrote may be on the disk or not. */
export function isSyncFailure(error: unknown): boolean {
  const code = resultCode(error);
  return code !== null && SYNC_CODES.has(code);
}

/** What is used of `node:sqlite`, which the types of Node 20 do not know. */
interface NodeStatement {
  run(...values: SqlValue[]): { readonly lastInsertRowid: number | bigint };
  get(...values: SqlValue[]): SqlRow | undefined;
  all(...values: SqlValue[]): readonly SqlRow[];
}
interface NodeSqlite {
  readonly DatabaseSync: new (
    file: string,
  ) => {
    prepare(sql: string): NodeStatement;
    exec(sql: string): void;
    close(): void;
  };
}

/** The driver for this Node. */
export async function loadDriver(): Promise<OpenDatabase> {
  const builtin = loadNodeSqlite();
  return builtin === null ? await loadLibsql() : openWithNode(builtin);
}

function isNodeSqlite(module: unknown): module is NodeSqlite {
  return typeof module === 'object' && module !== null && 'DatabaseSync' in module;
}

/** Loading it warns on standard error that it is experimental; that stream carries JSON lines only. */
function loadNodeSqlite(): NodeSqlite | null {
  const emitWarning = process.emitWarning;
  process.emitWarning = () => {};
  try {
    const module: unknown = process.getBuiltinModule('node:sqlite');
    return isNodeSqlite(module) ? module : null;
  } finally {
    process.emitWarning = emitWarning;
  }
}

function openWithNode({ DatabaseSync }: NodeSqlite): OpenDatabase {
  return (file) => {
    const database = new DatabaseSync(file);
    return {
      prepare(sql) {
        const statement = database.prepare(sql);
        return {
          run: (...values) => Number(statement.run(...values).lastInsertRowid),
          get: (...values) => statement.get(...values),
          all: (...values) => statement.all(...values),
        };
      },
      exec: (sql) => database.exec(sql),
      close: () => database.close(),
    };
  };
}

/** What is used of `libsql`. A single array is taken as the list of values. */
interface LibsqlStatement {
  run(values: readonly SqlValue[]): { readonly lastInsertRowid: number | bigint };
  get(values: readonly SqlValue[]): unknown;
  all(values: readonly SqlValue[]): unknown;
}

async function loadLibsql(): Promise<OpenDatabase> {
  const { default: Database } = await import('libsql');
  return (file) => {
    const database = new Database(file, {});
    return {
      prepare(sql) {
        const statement: LibsqlStatement = database.prepare(sql);
        return {
          run: (...values) => Number(statement.run(values).lastInsertRowid),
          // Rows of statements in this mode are objects by column name.
          get: (...values) => statement.get(values) as SqlRow | undefined,
          all: (...values) => statement.all(values) as readonly SqlRow[],
        };
      },
      exec(sql) {
        database.exec(sql);
      },
      close() {
        database.close();
      },
    };
  };
}
