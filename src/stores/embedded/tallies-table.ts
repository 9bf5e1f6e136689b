import type { BudgetRow } from '../../effects/controls.ts';
import type { BudgetChange } from '../../effects/plan.ts';
import type { SqlDatabase, SqlRow } from './driver.ts';
import { columnText, decode, integer, plainText, text } from './document.ts';

/** A rolling window is cut into this many slots; a slot counts until its end is a whole window ago. */
const SLOTS = 1000;

/** Rows kept in memory at most, between transactions. */
const CACHED_ROWS = 20_000;

/** What a row is of, as a document beside its figures. */
interface TallyIdentity {
  readonly unit: string;
  readonly bucket: string;
  readonly window: string;
}

interface Tally {
  /** Row; `null` until it is written. */
  n: number | null;
  readonly kind: 'budget' | 'rate';
  readonly workspace: string;
  readonly name: string;
  readonly budget: string;
  readonly identity: TallyIdentity;
  readonly rollingMs: number | null;
  ceiling: number;
  spent: number;
  held: number;
  /** From then on the row counts nothing unless something is held. */
  ends: number;
  /** Slots below are no longer in `spent`. */
  pruned: number;
  /** Slots below are still on disk though pruned. */
  stalePruned: boolean;
  pendingSlots: Map<number, number>;
}

/** How many rows of a budget count something, and when that has to be counted again. */
interface RowCount {
  rows: number;
  readonly countedAt: number;
  readonly until: number;
}

export interface TalliesTable {
  budget(
    workspace: string,
    budget: string,
    bucket: string,
    window: string,
    now: number,
  ): { readonly spent: number; readonly held: number; readonly rows: number };
  rate(workspace: string, id: string, bucket: string, windowMs: number, now: number): number;
  change(workspace: string, change: BudgetChange, now: number): void;
  count(
    workspace: string,
    rate: { readonly id: string; readonly bucket: string; readonly windowMs: number },
    now: number,
  ): void;
  /** Writes what has changed since the last call. */
  flush(): void;
  /** Rows whose window is not over. */
  rows(workspace: string, now: number): readonly BudgetRow[];
  /** Whether any row of a budget counts something, in any workspace. */
  inUse(budget: string, now: number): boolean;
  /** Begins a budget anew: rows without holds go, others keep only what is held. */
  reset(budget: string): void;
  /** Removes rows whose window is over and in which nothing is held. */
  sweep(now: number, limit: number): number;
  forget(): void;
}

/**
 * Budget rows and rates. Figures live in memory while a transaction runs and are written once at its end, however
 * many steps changed them. A rolling row is a running total and its slots, so that its cost does not depend on how
 * much is in it; what has aged out is taken off when the row is next looked at.
 */
export function openTalliesTable(database: SqlDatabase): TalliesTable {
  const columns = 'n, kind, workspace, budget, doc, ceiling, spent, held, ends, pruned';
  const byName = database.prepare(`SELECT ${columns} FROM tallies WHERE workspace = ? AND name = ?`);
  const insert = database.prepare(
    'INSERT INTO tallies (kind, workspace, name, budget, doc, ceiling, spent, held, ends, pruned) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const update = database.prepare(
    'UPDATE tallies SET ceiling = ?, spent = ?, held = ?, ends = ?, pruned = ? WHERE n = ?',
  );
  const sumSlots = database.prepare('SELECT coalesce(sum(amount), 0) AS total FROM slots WHERE tally = ? AND slot < ?');
  const dropSlots = database.prepare('DELETE FROM slots WHERE tally = ? AND slot < ?');
  const addSlot = database.prepare(
    'INSERT INTO slots (tally, slot, amount) VALUES (?, ?, ?) ON CONFLICT (tally, slot) DO UPDATE SET amount = amount + excluded.amount',
  );
  const countRows = database.prepare(
    "SELECT count(*) AS rows, min(ends) AS until FROM tallies WHERE workspace = ? AND kind = 'budget' AND budget = ? AND (ends > ? OR held > 0)",
  );
  const listRows = database.prepare(
    `SELECT name, ${columns} FROM tallies WHERE workspace = ? AND kind = 'budget' AND (ends > ? OR held > 0) ORDER BY budget, n`,
  );
  const anyRow = database.prepare(
    "SELECT 1 AS one FROM tallies WHERE kind = 'budget' AND budget = ? AND (ends > ? OR held > 0) LIMIT 1",
  );
  const dropReset = database.prepare(
    "DELETE FROM slots WHERE tally IN (SELECT n FROM tallies WHERE kind = 'budget' AND budget = ?)",
  );
  const removeReset = database.prepare("DELETE FROM tallies WHERE kind = 'budget' AND budget = ? AND held = 0");
  const clearReset = database.prepare("UPDATE tallies SET spent = 0 WHERE kind = 'budget' AND budget = ?");
  const over = database.prepare('SELECT n FROM tallies WHERE held = 0 AND ends <= ? ORDER BY ends LIMIT ?');
  const removeRow = database.prepare('DELETE FROM tallies WHERE n = ?');
  const removeSlots = database.prepare('DELETE FROM slots WHERE tally = ?');

  const cache = new Map<string, Tally>();
  let changed = new Set<Tally>();
  const counts = new Map<string, RowCount>();

  function fromRow(row: SqlRow, name: string): Tally {
    const identity = decode<TallyIdentity>(row['doc']);
    return {
      n: integer(row['n']),
      kind: row['kind'] === 'rate' ? 'rate' : 'budget',
      workspace: text(row['workspace']),
      name,
      budget: text(row['budget']),
      identity,
      rollingMs: rollingMs(identity.window),
      ceiling: integer(row['ceiling']),
      spent: integer(row['spent']),
      held: integer(row['held']),
      ends: integer(row['ends']),
      pruned: integer(row['pruned']),
      stalePruned: false,
      pendingSlots: new Map(),
    };
  }

  function find(workspace: string, name: string): Tally | null {
    const place = `${workspace}\0${name}`;
    const cached = cache.get(place);
    if (cached !== undefined) return cached;
    const row = byName.get(workspace, name);
    if (row === undefined) return null;
    const tally = fromRow(row, name);
    cache.set(place, tally);
    return tally;
  }

  function findOrMake(
    kind: Tally['kind'],
    workspace: string,
    budget: string,
    identity: TallyIdentity,
    now: number,
  ): Tally {
    const name = nameOf(kind, budget, identity);
    const there = find(workspace, name);
    if (there !== null) return there;
    const window = calendarEnd(identity.window);
    const tally: Tally = {
      n: null,
      kind,
      workspace,
      name,
      budget: columnText(budget),
      identity,
      rollingMs: rollingMs(identity.window),
      ceiling: 0,
      spent: 0,
      held: 0,
      ends: window ?? now,
      pruned: 0,
      stalePruned: false,
      pendingSlots: new Map(),
    };
    cache.set(`${workspace}\0${name}`, tally);
    const count = counts.get(`${workspace}\0${tally.budget}`);
    if (count !== undefined && kind === 'budget') count.rows += 1;
    return tally;
  }

  /** Takes off what has aged out of a rolling window. */
  function age(tally: Tally, now: number): void {
    if (tally.rollingMs === null) return;
    const floor = Math.floor((now - tally.rollingMs) / slotWidth(tally.rollingMs));
    if (floor <= tally.pruned) return;
    let gone = tally.n === null || tally.spent === 0 ? 0 : integer(sumSlots.get(tally.n, floor)?.['total']);
    // Slots below `pruned` that still stand on disk were taken off before.
    if (gone > 0 && tally.stalePruned && tally.n !== null)
      gone -= integer(sumSlots.get(tally.n, tally.pruned)?.['total']);
    for (const [slot, amount] of tally.pendingSlots) {
      if (slot >= floor) continue;
      gone += amount;
      tally.pendingSlots.delete(slot);
    }
    tally.pruned = floor;
    if (gone === 0) return;
    tally.spent = Math.max(0, tally.spent - gone);
    tally.stalePruned = true;
    changed.add(tally);
  }

  function spend(tally: Tally, amount: number, now: number): void {
    if (amount === 0) return;
    tally.spent = Math.min(Number.MAX_SAFE_INTEGER, tally.spent + amount);
    if (tally.rollingMs === null) return;
    const width = slotWidth(tally.rollingMs);
    const slot = Math.floor(now / width);
    tally.pendingSlots.set(slot, (tally.pendingSlots.get(slot) ?? 0) + amount);
    tally.ends = Math.max(tally.ends, (slot + 1) * width + tally.rollingMs);
  }

  function rowsOf(workspace: string, budget: string, now: number): number {
    const place = `${workspace}\0${budget}`;
    const known = counts.get(place);
    // Counting again costs as much as there are rows; so it is not done more often than that is worth.
    if (known !== undefined && (now < known.until || now < known.countedAt + known.rows / 10)) return known.rows;
    flush();
    const row = countRows.get(workspace, budget, now);
    const rows = integer(row?.['rows']);
    const until = row?.['until'];
    counts.set(place, { rows, countedAt: now, until: typeof until === 'number' ? until : Number.MAX_SAFE_INTEGER });
    return rows;
  }

  function flush(): void {
    for (const tally of changed) {
      if (tally.n === null) {
        tally.n = insert.run(
          tally.kind,
          tally.workspace,
          tally.name,
          tally.budget,
          JSON.stringify(tally.identity),
          tally.ceiling,
          tally.spent,
          tally.held,
          tally.ends,
          tally.pruned,
        );
      } else {
        update.run(tally.ceiling, tally.spent, tally.held, tally.ends, tally.pruned, tally.n);
      }
      if (tally.stalePruned) dropSlots.run(tally.n, tally.pruned);
      for (const [slot, amount] of tally.pendingSlots) addSlot.run(tally.n, slot, amount);
      tally.pendingSlots = new Map();
      tally.stalePruned = false;
    }
    changed = new Set();
    if (cache.size > CACHED_ROWS) cache.clear();
    if (counts.size > CACHED_ROWS) counts.clear();
  }

  return {
    budget(workspace, budget, bucket, window, now) {
      const place = columnText(workspace);
      const tally = find(place, nameOf('budget', budget, { bucket, window }));
      const rows = rowsOf(place, columnText(budget), now);
      if (tally === null) return { spent: 0, held: 0, rows };
      age(tally, now);
      return { spent: tally.spent, held: tally.held, rows };
    },
    rate(workspace, id, bucket, windowMs, now) {
      const tally = find(columnText(workspace), nameOf('rate', id, { bucket, window: `r:${windowMs}` }));
      if (tally === null) return 0;
      age(tally, now);
      return tally.spent;
    },
    change(workspace, change, now) {
      const { budget, unit, bucket, window } = change;
      const tally = findOrMake('budget', columnText(workspace), budget, { unit, bucket, window }, now);
      age(tally, now);
      tally.held = Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, tally.held + change.hold));
      spend(tally, change.spend, now);
      if (change.limit !== null) tally.ceiling = change.limit;
      changed.add(tally);
    },
    count(workspace, { id, bucket, windowMs }, now) {
      const identity = { unit: 'calls', bucket, window: `r:${windowMs}` };
      const tally = findOrMake('rate', columnText(workspace), id, identity, now);
      age(tally, now);
      spend(tally, 1, now);
      changed.add(tally);
    },
    flush,
    rows(workspace, now) {
      flush();
      return listRows.all(columnText(workspace), now).flatMap((row) => {
        const tally = find(columnText(workspace), text(row['name'])) ?? fromRow(row, text(row['name']));
        age(tally, now);
        const resetsAt = calendarEnd(tally.identity.window);
        if (resetsAt !== null && resetsAt <= now) return [];
        const { spent, held, ceiling, identity } = tally;
        return [{ budget: plainText(tally.budget), ...identity, limit: ceiling, spent, held, resetsAt }];
      });
    },
    inUse(budget, now) {
      flush();
      return anyRow.get(columnText(budget), now) !== undefined;
    },
    reset(budget) {
      flush();
      const name = columnText(budget);
      dropReset.run(name);
      removeReset.run(name);
      clearReset.run(name);
      cache.clear();
      counts.clear();
    },
    sweep(now, limit) {
      flush();
      const rows = over.all(now, limit);
      for (const row of rows) {
        removeSlots.run(integer(row['n']));
        removeRow.run(integer(row['n']));
      }
      if (rows.length > 0) {
        cache.clear();
        counts.clear();
      }
      return rows.length;
    },
    forget() {
      cache.clear();
      changed = new Set();
      counts.clear();
    },
  };
}

/** One text per row, injective: the lengths say where its parts end. */
function nameOf(
  kind: Tally['kind'],
  budget: string,
  row: { readonly bucket: string; readonly window: string },
): string {
  return columnText(`${kind} ${budget.length} ${row.bucket.length} ${budget} ${row.bucket} ${row.window}`);
}

function rollingMs(window: string): number | null {
  return window.startsWith('r:') ? Number(window.slice(2)) : null;
}

function calendarEnd(window: string): number | null {
  return window.startsWith('c:') ? Number(window.slice(window.lastIndexOf(':') + 1)) : null;
}

function slotWidth(windowMs: number): number {
  return Math.max(1, Math.ceil(windowMs / SLOTS));
}
