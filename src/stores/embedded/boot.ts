import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { beginningOf, type ClockSource, createStoreClock, type StoreClock, timeOf, wrapClock } from './clock.ts';
import type { OpenDatabase, SqlDatabase } from './driver.ts';
import { makePrivateFolder, syncFolder } from '../private-folder.ts';
import { makePrivateFile } from './files.ts';
import { type InstallMark, readInstallMark, writeInstallMark } from './install.ts';
import { countFrom, noteTime } from './machine.ts';
import { rewriteJournal, seeJournal } from './rewrite.ts';
import { configureConnection, rollback } from './connection.ts';
import type { Boot } from './ended.ts';
import { ensureRowTables } from './tables/schema.ts';
import { openRowSession, type RowSession } from './tables/session.ts';

/** Name of the database in the store's folder. */
export const STORE_FILE = 'store.db';

/** An open database file that belongs to this installation. */
export interface OpenStore {
  readonly kind: 'open';
  readonly database: SqlDatabase;
  readonly session: RowSession;
  readonly mark: InstallMark;
  /** The store was created just now. */
  readonly fresh: boolean;
}

/**
 * The store is older than the mark beside it says, or empty, or belongs to another installation. Nothing may be built
 * on it.
 */
export interface RolledBack {
  readonly kind: 'rolled_back';
  readonly installId: string;
  readonly message: string;
}

/** The machine's clock is not trusted. The file stays open, and the clock is checked again later. */
interface ClockAhead {
  readonly kind: 'clock_ahead';
  readonly opened: OpenStore;
  readonly message: string;
}

export type Booted = (OpenStore & { readonly clock: StoreClock; readonly boot: Boot }) | RolledBack | ClockAhead;

/** Runs `work` in a transaction. */
export function inTransaction<T>(database: SqlDatabase, session: RowSession, now: number, work: () => T): T {
  database.exec('BEGIN IMMEDIATE');
  try {
    session.beginAt(now);
    const result = work();
    session.flush();
    database.exec('COMMIT');
    return result;
  } catch (error) {
    session.forget();
    rollback(database);
    throw error;
  }
}

/**
 * Opens the store's file, creates it in a new installation, and compares it with the mark beside it. Throws the
 * driver's error for a file that cannot be opened.
 * @param watched kinds whose changes are told; may grow
 * @param now the time at which a new store's clock begins, ms
 * @param inUse a gateway runs on it, and the journal's content is that gateway's
 */
export function openStoreFile(
  path: string,
  open: OpenDatabase,
  watched: ReadonlySet<string>,
  now: number,
  inUse: boolean,
): OpenStore | RolledBack {
  makePrivateFolder(path);
  const beside = readInstallMark(path);
  const file = join(path, STORE_FILE);
  makePrivateFile(file);
  const journal = inUse ? null : seeJournal(path);
  const database = open(file);
  try {
    configureConnection(database);
    rewriteJournal(path, database, journal);
    ensureRowTables(database);
    syncFolder(path);
    const session = openRowSession(database, watched);
    const found = session.meta.find();
    if (found === null && beside !== null) {
      database.close();
      return rolledBack(path, beside, 'is empty');
    }
    if (found === null) {
      const installId = randomBytes(16).toString('hex');
      inTransaction(database, session, now, () => {
        // Another process may have created the store in between.
        if (session.meta.find() === null) session.meta.create(installId, now);
      });
    }
    const { installId, epoch, commits } = session.meta.get();
    if (beside !== null) {
      if (installId !== beside.installId) {
        database.close();
        return rolledBack(path, beside, 'belongs to another installation');
      }
      if (epoch < beside.epoch || commits < beside.commits) {
        database.close();
        return rolledBack(path, beside, 'is older than this gateway has seen it');
      }
    }
    // If the mark is gone, nobody can tell whether this is the newest state of the store: a new epoch.
    const continued = beside === null && found !== null ? epoch + 1 : epoch;
    return {
      kind: 'open',
      database,
      session,
      mark: { installId, epoch: continued, commits, seen: beside?.seen ?? null },
      fresh: found === null,
    };
  } catch (error) {
    database.close();
    throw error;
  }
}

function rolledBack(path: string, { installId }: InstallMark, what: string): RolledBack {
  return {
    kind: 'rolled_back',
    installId,
    message: `The store in ${path} ${what}: acknowledged actions may be missing from it, and repeating them could run them twice. Restore the newest copy of store.db; or, to go on with this one in a new epoch and accept the loss, delete ${join(path, 'install.json')}.`,
  };
}

/**
 * Opens the store for a gateway. Effects that an earlier boot left executing are answered as unknown from now on,
 * however many there are. The sweep records that.
 * @param clock the caller's clock; `null` uses the machine's
 * @param maxJumpMs how much time may have passed while nobody counted it
 */
export function bootStore(
  path: string,
  open: OpenDatabase,
  watched: ReadonlySet<string>,
  clock: ClockSource | null,
  maxJumpMs: number,
): Booted {
  const opened = openStoreFile(path, open, watched, timeOf(clock), false);
  return opened.kind === 'rolled_back' ? opened : beginBoot(path, opened, clock, maxJumpMs);
}

/** The rest of {@link bootStore} for a file that is already open. */
export function beginBoot(path: string, opened: OpenStore, clock: ClockSource | null, maxJumpMs: number): Booted {
  const { database, session, mark } = opened;
  try {
    session.forget();
    const told = session.meta.get();
    // After a boot, no time is used a second time, because the time of an admission tells that it was before the boot.
    const start = told.boots === 0 ? told.clock : told.clock + 1;
    const counted = clock === null ? countFrom(mark.seen) : null;
    const beginning = beginningOf(start, counted, timeOf(clock), maxJumpMs);
    if (beginning.kind === 'ahead') return { kind: 'clock_ahead', opened, message: beginning.message };
    const storeClock = clock === null ? createStoreClock(beginning.time, maxJumpMs) : wrapClock(beginning.time, clock);
    const now = storeClock.now();
    inTransaction(database, session, now, () => session.meta.boot(mark.epoch));
    const seen = typeof clock === 'function' ? null : noteTime(now);
    writeInstallMark(path, { ...mark, commits: session.meta.get().commits, seen });
    return { ...opened, clock: storeClock, boot: { at: start, unwatchedMs: now - start } };
  } catch (error) {
    database.close();
    throw error;
  }
}
