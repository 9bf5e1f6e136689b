import { randomBytes } from 'node:crypto';
import { StoreUnavailable } from '../../effects/store.ts';
import type { RowStore } from '../port.ts';
import { openUnjudged, rolledBack } from './boot.ts';
import { countFrom } from './clock.ts';
import { inTransaction, loadDriver } from './driver.ts';
import { describe } from './failure-text.ts';
import { type InstallMark, readInstallMark } from './install.ts';
import { acquireLock } from './lock.ts';
import { type Marks, readFence, type StorePlace, writeMarks } from './marks.ts';
import { rowsOver } from './shared-rows.ts';

/** A store of which something may be missing, before it goes on. */
export interface Incomplete {
  readonly rows: RowStore;
  readonly epoch: number;
  /** How many transactions it has had, and how many the marks know of, those included that were lost before. */
  readonly commits: number;
  readonly knownCommits: number;
}

/**
 * Goes on, in a new epoch, with a store of which something may be missing. The marks are written last: until then a start
 * refuses it as before.
 * @param always also if nothing says that something is missing
 * @param work what is written to it before it goes on
 * @returns what `work` returned, and why the mark outside could not be written; `null`: nothing is missing
 * @throws StoreUnavailable while a gateway uses the store, and for a file that cannot be used; what `work` throws
 */
export async function beginEpoch<T>(
  place: StorePlace,
  always: boolean,
  work: (store: Incomplete) => Promise<T>,
): Promise<{ readonly result: T; readonly warning: string | null } | null> {
  const { path } = place;
  const open = await loadDriver();
  const lock = await acquireLock(path, open, 0);
  try {
    const { database, session } = opening(path, () => openUnjudged(path, open, new Set(), false));
    try {
      const before = session.meta.find();
      const { marks, isDamaged } = readableMarks(place, before?.installId ?? null);
      if (!always && !isDamaged && rolledBack(path, before, marks) === null) return null;
      const known = [marks.beside, marks.fenced].filter((mark) => mark !== null);
      const time = Math.max(before?.clock ?? Date.now(), ...known.map(timeOf));
      const epoch = 1 + Math.max(before?.epoch ?? 0, ...known.map((mark) => mark.epoch));
      inTransaction(database, () => {
        if (before === null) session.meta.create(marks.beside?.installId ?? randomBytes(16).toString('hex'), time);
        session.meta.beginEpoch(epoch);
      });
      const knownCommits = Math.max(0, ...known.map(({ commits, lost }) => commits + lost));
      const result = await work({
        rows: rowsOver(database, session, () => Math.max(time, session.meta.get().clock)),
        epoch,
        commits: before?.commits ?? 0,
        knownCommits,
      });
      const { installId, commits } = session.meta.get();
      const seen = marks.beside?.seen ?? marks.fenced?.seen ?? null;
      const lost = Math.max(0, knownCommits - (before?.commits ?? 0));
      return { result, warning: opening(path, () => writeMarks(place, { installId, epoch, commits, lost, seen })) };
    } finally {
      database.close();
    }
  } finally {
    lock.release();
  }
}

/** The marks; one that is damaged says nothing. That something may be missing is being accepted. */
function readableMarks(
  place: StorePlace,
  installId: string | null,
): { readonly marks: Marks; readonly isDamaged: boolean } {
  let isDamaged = false;
  const orNull = <T>(read: () => T): T | null => {
    try {
      return read();
    } catch {
      isDamaged = true;
      return null;
    }
  };
  const beside = orNull(() => readInstallMark(place.path));
  const id = installId ?? beside?.installId ?? null;
  const fenced = id !== null ? orNull(() => readFence(place.fence, id)) : null;
  return { marks: { beside, fenced }, isDamaged };
}

function timeOf({ seen }: InstallMark): number {
  return Math.max(seen?.time ?? 0, countFrom(seen) ?? 0);
}

function opening<T>(path: string, open: () => T): T {
  try {
    return open();
  } catch (error) {
    throw new StoreUnavailable(describe(path, error));
  }
}
