import type { Change, EventDraft, Row, SumName } from '../stores/port.ts';
import { columnText, integer, text } from '../stores/embedded/tables/columns.ts';
import type { SqlDatabase } from '../stores/embedded/driver.ts';
import { openLedgerTable } from '../stores/embedded/tables/ledger-table.ts';
import type { FileMeta } from '../stores/embedded/tables/meta-table.ts';
import { openNames } from '../stores/embedded/tables/names.ts';
import { ensureRowTables } from '../stores/embedded/tables/schema.ts';
import { openRowSession } from '../stores/embedded/tables/session.ts';

/** A figure as it was in the other file. */
export interface LoadedFigure extends SumName {
  readonly text: string;
  readonly spent: number;
  readonly held: number;
  /** From this time on it counts nothing unless something is held, ms. */
  readonly ends: number;
  /** Slots below this are no longer in `spent`. */
  readonly pruned: number;
  readonly slots: readonly { readonly slot: number; readonly amount: number }[];
}

/** Where events were. */
export interface LoadedPlace {
  readonly epoch: number;
  readonly seq: number;
  readonly at: number;
}

/** Fills a new file with the content of another one, unchanged: events at their places, figures with their slots. */
export interface RowLoad {
  readonly epoch: number;
  /** A part of the work that fits into memory. */
  slice(work: () => void): void;
  row(workspace: string, kind: string, id: string): Row | null;
  /**
   * Makes a change without checks of its time; the time is zero here.
   * @throws TypeError if it is refused, although nobody else writes
   */
  commit(change: Change): void;
  /** @throws TypeError if `seq` is not the next place in the ledger of the workspace */
  events(workspace: string, place: LoadedPlace, events: readonly EventDraft[]): void;
  figure(workspace: string, figure: LoadedFigure): void;
}

export interface OpenLoad extends RowLoad {
  /** Completes the file: what it says about itself is copied from the other one. */
  finish(): void;
}

/**
 * Opens an empty file to fill. Until {@link OpenLoad.finish} it is not a store: remove it after an error.
 * @param meta what the file will say about itself; `null`: no gateway ever used it
 */
export function openLoad(database: SqlDatabase, meta: FileMeta | null): OpenLoad {
  // After a power cut the file is thrown away, so nothing is synced and nothing can be rolled back.
  for (const setting of ['page_size = 8192', 'journal_mode = OFF', 'synchronous = OFF', 'cache_size = -65536'])
    database.prepare(`PRAGMA ${setting}`).all();
  ensureRowTables(database);
  if (meta !== null)
    database
      .prepare('INSERT INTO meta (one, install_id, epoch, boots, clock, commits) VALUES (1, ?, ?, ?, ?, ?)')
      .run(meta.installId, meta.epoch, meta.boots, meta.clock, meta.commits);
  // One transaction: pages that do not fit into the cache are written early, but most pages only once.
  database.exec('BEGIN IMMEDIATE');
  const session = openRowSession(database, new Set());
  const names = openNames(database);
  const ledger = openLedgerTable(database);
  const addFigure = database.prepare(
    'INSERT INTO figures (workspace, name, grouped, rolling, text, spent, held, ends, pruned) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const addSlot = database.prepare('INSERT INTO slots (figure, slot, amount) VALUES (?, ?, ?)');

  return {
    epoch: meta?.epoch ?? 1,
    slice(work) {
      session.within(() => 0, work);
    },
    row: (workspace, kind, id) => session.read(workspace, [{ kind, id }], []).rows[0]?.row ?? null,
    commit(change) {
      // Changes that are carried over were made at their own time.
      const carried = { ...change, at: 0, from: 0, until: Number.MAX_SAFE_INTEGER };
      if (session.commit(carried).kind !== 'done') throw new TypeError('a record of the store stands in it twice');
    },
    events(workspace, { epoch, seq, at }, events) {
      const { n } = names.workspace(workspace);
      if (ledger.nextSeq(n) !== seq) throw new TypeError(`the ledger of ${workspace} has a gap before ${seq}`);
      ledger.append(n, events);
      ledger.flush(epoch, at);
    },
    figure(workspace, { name, span, group, text: shown, spent, held, ends, pruned, slots }) {
      const n = addFigure.run(
        names.workspace(workspace).n,
        columnText(name),
        columnText(group),
        span.kind === 'rolling' ? span.ms : null,
        columnText(shown),
        spent,
        held,
        ends,
        pruned,
      );
      for (const { slot, amount } of slots) addSlot.run(n, slot, amount);
    },
    finish() {
      if (meta !== null) database.prepare('UPDATE meta SET clock = ?, commits = ?').run(meta.clock, meta.commits);
      database.exec('COMMIT');
    },
  };
}

/** How many records a file of this format has: rows by kind, events, figures. */
export function countRecords(database: SqlDatabase): Readonly<Record<string, number>> {
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
