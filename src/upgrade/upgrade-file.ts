import {
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  linkSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
} from 'node:fs';
import { join } from 'node:path';
import { StoreUnavailable } from '../effects/store.ts';
import { makePrivateFile, syncFolder } from '../stores/private-folder.ts';
import { STORE_FILE } from '../stores/embedded/boot.ts';
import {
  loadDriver,
  type OpenDatabase,
  SQLITE_BUSY,
  type SqlDatabase,
  storageFailure,
} from '../stores/embedded/driver.ts';
import { describe, isFull, lockFolder } from '../stores/embedded/engine.ts';
import { FORMAT_1, type Format1, readFormat1 } from './format-1.ts';
import { isLocked } from '../stores/embedded/lock.ts';
import { JOURNAL, rewriteJournal, seeJournal } from '../stores/embedded/rewrite.ts';
import { countRecords, openLoad, type RowLoad } from './fill.ts';
import { FORMAT_NUMBER, formatOf } from '../stores/embedded/tables/schema.ts';
import { configureConnection, rollback } from '../stores/embedded/connection.ts';

/** The old file, kept beside the new one. */
export const OLD_FILE = `${STORE_FILE}.format-${FORMAT_1}`;
/** The new file while it is being filled. If a start finds one, an earlier start left it unfinished. */
const DRAFT_FILE = `${STORE_FILE}.format-${FORMAT_NUMBER}`;

/** Copies everything in a file of format 1 into a new one. */
export type CarryOver = (from: Format1, into: RowLoad) => Promise<void>;

/** A store that was converted. */
export interface Upgraded {
  readonly from: number;
  readonly to: number;
  /** How many records there were of each kind. */
  readonly records: Readonly<Record<string, number>>;
  /** The old file. */
  readonly kept: string;
  readonly tookMs: number;
}

/**
 * Converts the file of a store to the format of this program if it has an earlier one. The new file is filled beside
 * the old one. When it is complete and on the disk, it takes the old one's name in one step. Until then, an error or
 * the end of the process leaves the store unchanged, and the next start begins again.
 * @returns `null` if there was nothing to do
 * @throws StoreUnavailable while another process uses the store, for a file that cannot be used, and if there is no
 *   room
 */
export async function upgradeFile(path: string, lockWaitMs: number, carry: CarryOver): Promise<Upgraded | null> {
  if (!existsSync(join(path, STORE_FILE))) return null;
  const open = await loadDriver();
  const lock = await lockFolder(path, open, lockWaitMs);
  try {
    removeDraft(path);
    return mayBeOld(path) ? await bringForward(path, open, carry) : null;
  } catch (error) {
    removeDraft(path);
    throw error instanceof StoreUnavailable ? error : new StoreUnavailable(whyNot(path, error));
  } finally {
    lock.release();
  }
}

/** How much is read of the header of a database (https://www.sqlite.org/fileformat2.html#the_database_header). */
const HEADER_BYTES = 64;
const USER_VERSION_AT = 60;

/**
 * Whether the file has to be opened to know its format. This reads the first page without SQLite, because a process
 * that opened and closed the file each time would have to move the journal of a crash into it. Only under the lock:
 * closing a file releases the locks that this process has on it.
 */
function mayBeOld(path: string): boolean {
  const header = Buffer.alloc(HEADER_BYTES);
  const descriptor = openSync(join(path, STORE_FILE), 'r');
  try {
    readSync(descriptor, header, 0, HEADER_BYTES, 0);
  } finally {
    closeSync(descriptor);
  }
  const found = header.readUInt32BE(USER_VERSION_AT);
  // The first transactions of a store may be only in its journal.
  return found === FORMAT_1 || (found === 0 && seeJournal(path) !== null);
}

/** Opens a store's file without changes, and writes the journal that a crash left to the disk again. */
function openAsItIs(path: string, open: OpenDatabase, inUse: boolean): SqlDatabase {
  const journal = inUse ? null : seeJournal(path);
  const database = open(join(path, STORE_FILE));
  try {
    configureConnection(database);
    rewriteJournal(path, database, journal);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

async function bringForward(path: string, open: OpenDatabase, carry: CarryOver): Promise<Upgraded | null> {
  const start = performance.now();
  const database = openAsItIs(path, open, false);
  try {
    if (formatOf(database) !== FORMAT_1) return null;
    const from = readFormat1(database);
    holdAlone(database);
    const records = from.counts();
    await fillDraft(path, open, from, records, carry);
    swap(path);
    return {
      from: FORMAT_1,
      to: FORMAT_NUMBER,
      records,
      kept: join(path, OLD_FILE),
      tookMs: Math.round(performance.now() - start),
    };
  } finally {
    rollback(database);
    database.close();
  }
}

/** Moves all of the store into its one file, and keeps others from reading or writing it until the transaction ends. */
function holdAlone(database: SqlDatabase): void {
  database.prepare('PRAGMA wal_checkpoint(TRUNCATE)').all();
  const mode = database.prepare('PRAGMA journal_mode = DELETE').get()?.['journal_mode'];
  if (mode !== 'delete') throw new Error('another process has store.db open; end it, and start again');
  database.exec('BEGIN EXCLUSIVE');
}

async function fillDraft(
  path: string,
  open: OpenDatabase,
  from: Format1,
  records: Upgraded['records'],
  carry: CarryOver,
): Promise<void> {
  const draft = join(path, DRAFT_FILE);
  makePrivateFile(draft);
  const database = open(draft);
  try {
    const load = openLoad(database, from.meta);
    await carry(from, load);
    load.finish();
    compare(records, countRecords(database));
  } finally {
    database.close();
  }
  const descriptor = openSync(draft, 'r+');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Makes sure that nothing was left behind, before the new file replaces the old one. */
function compare(old: Readonly<Record<string, number>>, filled: Readonly<Record<string, number>>): void {
  const of = (counts: Readonly<Record<string, number>>, name: string): number => counts[name] ?? 0;
  const pairs = [
    ['effects', of(old, 'effects and tombstones'), of(filled, 'effect')],
    ['idempotency keys', of(old, 'idempotency keys'), of(filled, 'key')],
    ['events', of(old, 'events'), of(filled, 'events')],
    ['approvals', of(old, 'approvals'), of(filled, 'approval')],
    ['rejections', of(old, 'rejections'), of(filled, 'rejection')],
    ['claims', of(old, 'claims'), of(filled, 'claim')],
    ['reservations', of(old, 'reservations'), of(filled, 'reservation')],
    ['figures', of(old, 'figures'), of(filled, 'figures')],
    ['API keys', of(old, 'API keys'), of(filled, 'api_key')],
    ['workspaces', of(old, 'workspaces'), of(filled, 'workspace')],
    ['agents', of(old, 'agents'), of(filled, 'agent')],
  ] as const;
  for (const [name, was, is] of pairs)
    if (was !== is) throw new Error(`of ${was} ${name} ${is} came into the new file; the store is left as it was`);
}

/**
 * The old file gets a second name before the new one takes its first. So at every moment the first name belongs to a
 * complete store.
 */
function swap(path: string): void {
  const file = join(path, STORE_FILE);
  const old = join(path, OLD_FILE);
  if (!isSameFile(file, old)) {
    const beside = `${old}.new`;
    rmSync(beside, { force: true });
    secondName(file, beside);
    renameSync(beside, old);
  }
  syncFolder(path);
  renameSync(join(path, DRAFT_FILE), file);
  syncFolder(path);
}

function isSameFile(one: string, other: string): boolean {
  return existsSync(other) && statSync(one).ino === statSync(other).ino;
}

/** Some file systems have no hard links; then it is copied. */
function secondName(file: string, name: string): void {
  try {
    linkSync(file, name);
    return;
  } catch (error) {
    if (isFull(error)) throw error;
  }
  copyFileSync(file, name);
  const descriptor = openSync(name, 'r+');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function removeDraft(path: string): void {
  for (const end of ['', '-journal', '-wal', '-shm']) rmSync(join(path, `${DRAFT_FILE}${end}`), { force: true });
}

function whyNot(path: string, error: unknown): string {
  const nothingLost = 'Nothing is lost: the store is as it was, and the next start tries again.';
  if (isFull(error)) {
    const megabytes = Math.ceil(statSync(join(path, STORE_FILE)).size / 1e6);
    return `There is no room in ${path} to bring the store to format ${FORMAT_NUMBER}: beside the old file (${megabytes} MB) as much again is needed, and free are ${freeMegabytes(path)} MB. ${nothingLost}`;
  }
  if (storageFailure(error) === SQLITE_BUSY)
    return `The store in ${path} cannot be brought to format ${FORMAT_NUMBER} while another process has store.db open. End it. ${nothingLost}`;
  return `${describe(path, error)} It was to be brought to format ${FORMAT_NUMBER}. ${nothingLost}`;
}

function freeMegabytes(path: string): number {
  const { bavail, bsize } = statfsSync(path);
  return Math.floor((bavail * bsize) / 1e6);
}

/** What a store's file is, and what a start would do with it. */
export type FormatGlance =
  | { readonly state: 'absent'; readonly current: number }
  | { readonly state: 'unusable'; readonly current: number; readonly message: string }
  | {
      readonly state: 'current' | 'old';
      readonly current: number;
      readonly format: number;
      /** A gateway holds the lock. */
      readonly inUse: boolean;
      readonly records: Readonly<Record<string, number>>;
      readonly bytes: number;
      readonly freeBytes: number;
      /** An old file that an earlier start kept; `null`: there is none. */
      readonly kept: string | null;
    };

/** Looks at the format of a store's file without changing anything in it, even while a gateway runs on it. */
export async function glanceAtFormat(path: string): Promise<FormatGlance> {
  const current = FORMAT_NUMBER;
  const file = join(path, STORE_FILE);
  if (!existsSync(file)) return { state: 'absent', current };
  const open = await loadDriver();
  try {
    const inUse = existsSync(join(path, 'lock.db')) && isLocked(path, open);
    const database = openToLook(path, open, inUse);
    try {
      const format = formatOf(database);
      if (format > current)
        throw new Error(
          `it has the format ${format}, and this program knows ${current}: it was written by a later version; use that version`,
        );
      if (format !== FORMAT_1 && format !== FORMAT_NUMBER) throw new Error('store.db is no store of this program');
      const { bavail, bsize } = statfsSync(path);
      return {
        state: format === current ? 'current' : 'old',
        current,
        format,
        inUse,
        records: format === FORMAT_1 ? readFormat1(database).counts() : countRecords(database),
        bytes: statSync(file).size,
        freeBytes: bavail * bsize,
        kept: existsSync(join(path, OLD_FILE)) ? join(path, OLD_FILE) : null,
      };
    } finally {
      database.close();
    }
  } catch (error) {
    return { state: 'unusable', current, message: describe(path, error) };
  }
}

/** If a crash left a journal, the file is opened as a start opens it, so that nothing is lost. */
function openToLook(path: string, open: OpenDatabase, inUse: boolean): SqlDatabase {
  if (!inUse && existsSync(join(path, JOURNAL))) return openAsItIs(path, open, false);
  const database = open(join(path, STORE_FILE));
  database.prepare('PRAGMA busy_timeout = 5000').all();
  database.prepare('PRAGMA query_only = 1').all();
  return database;
}
