import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { beginningOf, countFrom, createStoreClock, type StoreClock } from './clock.ts';
import { configureConnection, inTransaction, type OpenDatabase, type SqlDatabase } from './driver.ts';
import { makePrivateFile, makePrivateFolder, syncPath } from '../private-folder.ts';
import type { InstallMark } from './install.ts';
import { type Marks, readMarks, type StorePlace, writeMarks } from './marks.ts';
import { rewriteJournal, seeJournal } from './rewrite.ts';
import type { Boot } from './ended.ts';
import type { FileMeta } from './tables/meta-table.ts';
import { ensureRowTables } from './tables/schema.ts';
import { openRowSession, type RowSession } from './tables/session.ts';

/** Name of the database in the store's folder. */
export const STORE_FILE = 'store.db';

export interface OpenStore {
  readonly kind: 'open';
  readonly database: SqlDatabase;
  readonly session: RowSession;
  readonly mark: InstallMark;
  readonly fresh: boolean;
}

/** Why a store is not used. Its file is closed. */
interface NotUsed<Code extends string> {
  readonly kind: Code;
  readonly installId: string;
  readonly message: string;
}

/**
 * The store is older than the mark beside it says, or empty, or belongs to another installation. Nothing may be built
 * on it.
 */
export type RolledBack = NotUsed<'store_rolled_back'>;

/** Or the machine's clock is not trusted. Somebody may correct it, or an operator accept it. */
export type Booted =
  | (OpenStore & {
      readonly clock: StoreClock;
      readonly boot: Boot;
      /** Why the mark outside the store could not be written; `null` if it was. */
      readonly warning: string | null;
    })
  | RolledBack
  | NotUsed<'clock_ahead'>;

/**
 * Opens the store's file, creates it in a new installation, and compares it with the mark beside it. Throws the
 * driver's error for a file that cannot be opened.
 * @param watched kinds whose changes are told; may grow
 * @param now the time at which a new store's clock begins, ms
 * @param inUse a gateway runs on it, and the journal's content is that gateway's
 */
export function openStoreFile(
  place: StorePlace,
  open: OpenDatabase,
  watched: ReadonlySet<string>,
  now: number,
  inUse: boolean,
): OpenStore | RolledBack {
  const { path } = place;
  // A damaged mark is told of before anything is created. And before the store is looked at: a gateway that runs on it may
  // renew them meanwhile, and the store would seem to be older.
  const before = readMarks(place, null);
  const { database, session } = openUnjudged(path, open, watched, inUse);
  try {
    const found = session.meta.find();
    const marks = before.beside === null ? readMarks(place, found?.installId ?? null) : before;
    const wrong = rolledBack(path, found, marks);
    if (wrong !== null) {
      database.close();
      return wrong;
    }
    const known = marks.beside ?? marks.fenced;
    if (found === null) {
      const created = randomBytes(16).toString('hex');
      inTransaction(database, () => {
        // Another process may have created the store in between.
        if (session.meta.find() === null) session.meta.create(created, now);
      });
    }
    const { installId, epoch, commits } = session.meta.get();
    // If the marks are gone, nobody can tell whether this is the newest state of the store: a new epoch.
    const continued = known === null && found !== null ? epoch + 1 : epoch;
    return {
      kind: 'open',
      database,
      session,
      mark: { installId, epoch: continued, commits, lost: known?.lost ?? 0, seen: known?.seen ?? null },
      fresh: found === null,
    };
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Opens the store's file, creates its tables where they are absent, and asks nobody how far it should have come. */
export function openUnjudged(
  path: string,
  open: OpenDatabase,
  watched: ReadonlySet<string>,
  inUse: boolean,
): Pick<OpenStore, 'database' | 'session'> {
  makePrivateFolder(path);
  const file = join(path, STORE_FILE);
  makePrivateFile(file);
  const journal = inUse ? null : seeJournal(path);
  const database = open(file);
  try {
    configureConnection(database);
    rewriteJournal(path, database, journal);
    ensureRowTables(database);
    syncPath(path);
    return { database, session: openRowSession(database, watched) };
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Whether a store is older than what is remembered of it, beside it or outside. */
export function rolledBack(path: string, found: FileMeta | null, { beside, fenced }: Marks): RolledBack | null {
  for (const known of [beside, fenced]) {
    const wrong = known === null ? null : whatIsWrong(found, known);
    if (known === null || wrong === null) continue;
    return {
      kind: 'store_rolled_back',
      installId: known.installId,
      message: `The store in ${path} ${wrong}: acknowledged actions may be missing from it, and repeating them could run them twice. Stop the gateway. Put back the newest copy of the folder; or, to go on with this one in a new epoch and accept the loss, run svc store accept-loss.${known === fenced ? ' If it is a copy, for a drill say, name a folder of its own in store.fence.' : ''}`,
    };
  }
  return null;
}

/** Why a store is not the one that its mark remembers, or `null`. */
function whatIsWrong(found: FileMeta | null, known: InstallMark): string | null {
  if (found === null) return 'is empty';
  if (found.installId !== known.installId) return 'belongs to another installation';
  return found.epoch < known.epoch || found.commits < known.commits ? 'is older than this gateway has seen it' : null;
}

/**
 * Opens the store for a gateway. Effects that an earlier boot left executing are answered as unknown from now on,
 * however many there are. The sweep records that.
 * @param running the clock, if it runs already: the caller's, or the one of a process that opens its file again. What
 *   that process has sent is still running, so its clock continues, whatever the machine's says
 * @param maxJumpMs how much time may have passed while nobody counted it
 */
export function bootStore(
  place: StorePlace,
  open: OpenDatabase,
  watched: ReadonlySet<string>,
  running: StoreClock | null,
  maxJumpMs: number,
): Booted {
  const opened = openStoreFile(place, open, watched, running?.now() ?? Date.now(), false);
  if (opened.kind !== 'open') return opened;
  const { database, session, mark } = opened;
  try {
    const recorded = session.meta.get();
    // After a boot, no time is used a second time, because the time of an admission tells that it was before the boot.
    const start = recorded.boots === 0 ? recorded.clock : recorded.clock + 1;
    const clock = running ?? clockFrom(start, mark, maxJumpMs);
    if ('message' in clock) {
      database.close();
      return { kind: 'clock_ahead', installId: mark.installId, message: clock.message };
    }
    clock.accept(start);
    const now = clock.now();
    inTransaction(database, () => session.meta.boot(mark.epoch, now));
    const warning = writeMarks(place, { ...mark, commits: session.meta.get().commits, seen: clock.seen() });
    return { ...opened, clock, boot: { at: start, unwatchedMs: now - start }, warning };
  } catch (error) {
    database.close();
    throw error;
  }
}

function clockFrom(start: number, { seen }: InstallMark, maxJumpMs: number): StoreClock | { readonly message: string } {
  const beginning = beginningOf(start, countFrom(seen), maxJumpMs);
  return beginning.kind === 'ahead' ? beginning : createStoreClock(beginning.time, maxJumpMs);
}
