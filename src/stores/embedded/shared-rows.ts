import { StoreUnavailable } from '../../effects/store.ts';
import type { RowStore } from '../port.ts';
import { makePrivateFolder } from '../private-folder.ts';
import { openStoreFile } from './boot.ts';
import { countFrom } from './clock.ts';
import { loadDriver, onOneState, type SqlDatabase } from './driver.ts';
import { describe } from './failure-text.ts';
import { type StorePlace, writeMarks } from './marks.ts';
import { isLocked } from './lock.ts';
import { openReader } from './tables/reader.ts';
import type { RowSession } from './tables/session.ts';

/** What is known of the time when a transaction begins, ms. */
export interface KnownTime {
  /** The highest recorded time. */
  readonly record: number;
  /** What the time must be at least, from the machine's uptime; `null` if the machine was off meanwhile. */
  readonly counted: number | null;
}

/**
 * The rows of a store, for another process than the gateway. Each change is one short transaction; the gateway notices
 * it.
 */
export interface SharedRows extends RowStore {
  readonly installId: string;
  known(): KnownTime;
}

/**
 * Opens a store even while a gateway runs on it. Creates the store if it is absent.
 * @param time the time of a transaction, ms
 * @throws StoreUnavailable for a store that was set back or emptied, or whose file cannot be used
 */
export async function openSharedRows(place: StorePlace, time: (known: KnownTime) => number): Promise<SharedRows> {
  const { path } = place;
  const open = await loadDriver();
  makePrivateFolder(path);
  const inUse = isLocked(path, open);
  const opened = (() => {
    try {
      return openStoreFile(place, open, new Set(), Date.now(), inUse);
    } catch (error) {
      throw new StoreUnavailable(describe(path, error), { cause: error });
    }
  })();
  if (opened.kind === 'store_rolled_back') throw new StoreUnavailable(opened.message);
  const { database, session, mark } = opened;
  if (opened.fresh) writeMarks(place, mark);
  const known = (): KnownTime => ({ record: session.meta.get().clock, counted: countFrom(mark.seen) });
  return {
    ...rowsOver(database, session, () => time(known())),
    installId: mark.installId,
    known() {
      session.forget();
      return known();
    },
  };
}

/**
 * The rows of an open file, which they close. Each change is one transaction.
 * @param begin the time of a transaction, ms
 */
export function rowsOver(database: SqlDatabase, session: RowSession, begin: () => number): RowStore {
  const reader = openReader(database);

  /** The gateway may have written since, so what is in memory is out of date. */
  async function write<T>(work: () => T): Promise<T> {
    session.forget();
    return session.transact(begin, work);
  }

  async function reading<T>(work: () => T): Promise<T> {
    session.forget();
    return onOneState(database, () => session.within(begin, work));
  }

  return {
    now: begin,
    commit: (change) => write(() => session.commit(change)),
    read: (workspace, wants, sums) => reading(() => session.read(workspace, wants, sums)),
    sums: (workspace, limit) => reading(() => session.sums(workspace, null, limit)),
    prune: (workspace, limit) => write(() => session.prune(workspace, limit)),
    rows: (workspace, names) => reading(() => reader.rows({ workspace, names })),
    list: (query) => reading(() => reader.list(query)),
    ledger: (query) => reading(() => reader.ledger(query)),
    watch() {},
    async close() {
      database.close();
    },
  };
}
