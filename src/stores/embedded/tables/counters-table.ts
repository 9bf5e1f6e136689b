import type { Counter, SumChange, SumListed, SumName } from '../../port.ts';
import type { SqlDatabase, SqlRow } from '../driver.ts';
import { columnText, integer, ownText, plainText } from './columns.ts';

/** A rolling window is divided into this many slots. A slot counts until its end is a whole window ago. */
const SLOTS = 1000;

/** The most counters and groups that stay in memory between transactions. */
const CACHED = 20_000;

/** How many counters of a group count something, and when they have to be counted again. */
interface Group {
  rows: number;
  countedAt: number;
  until: number;
}

interface Kept {
  /** Row; 0 until it is written. */
  n: number;
  readonly workspace: number;
  readonly name: string;
  readonly grouped: string;
  readonly group: Group;
  readonly rollingMs: number | null;
  text: string;
  spent: number;
  held: number;
  /** From this time on it counts nothing unless something is held. */
  ends: number;
  /** Slots below this are no longer in `spent`. */
  pruned: number;
  /** Slots below this are still on disk although they were removed from `spent`. */
  isStale: boolean;
  isChanged: boolean;
  slots: Map<number, number>;
}

/**
 * Counters are kept in memory while a transaction runs and written once at its end, however many changes there were. A
 * rolling one is a running total plus its slots, so its cost does not depend on how much it contains. Slots that are
 * too old are subtracted when the counter is next looked at.
 */
export function openCountersTable(database: SqlDatabase) {
  const columns = 'n, workspace, name, grouped, rolling, text, spent, held, ends, pruned';
  const byName = database.prepare(`SELECT ${columns} FROM figures WHERE workspace = ? AND name = ?`);
  const insert = database.prepare(
    'INSERT INTO figures (workspace, name, grouped, rolling, text, spent, held, ends, pruned) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const update = database.prepare('UPDATE figures SET text = ?, spent = ?, held = ?, ends = ?, pruned = ? WHERE n = ?');
  const sumSlots = database.prepare(
    'SELECT coalesce(sum(amount), 0) AS total FROM slots WHERE figure = ? AND slot < ?',
  );
  const dropSlots = database.prepare('DELETE FROM slots WHERE figure = ? AND slot < ?');
  const addSlot = database.prepare(
    'INSERT INTO slots (figure, slot, amount) VALUES (?, ?, ?) ON CONFLICT (figure, slot) DO UPDATE SET amount = amount + excluded.amount',
  );
  const countGroup = database.prepare(
    'SELECT count(*) AS rows, min(CASE WHEN ends > ?1 THEN ends END) AS until FROM figures WHERE workspace = ?2 AND grouped = ?3 AND (ends > ?1 OR held > 0)',
  );
  const countHeld = database.prepare(
    'SELECT count(*) AS rows FROM figures WHERE workspace = ? AND grouped = ? AND held > 0',
  );
  const counting = `SELECT ${columns} FROM figures WHERE workspace = ? AND (ends > ? OR held > 0)`;
  const selectFirst = database.prepare(`${counting} ORDER BY name LIMIT ?`);
  const selectNext = database.prepare(`${counting} AND name > ? ORDER BY name LIMIT ?`);
  const selectOver = database.prepare(
    'SELECT n FROM figures WHERE workspace = ? AND held = 0 AND ends <= ? ORDER BY ends LIMIT ?',
  );
  const remove = database.prepare('DELETE FROM figures WHERE n = ?');
  const removeSlots = database.prepare('DELETE FROM slots WHERE figure = ?');
  const dropGroupSlots = database.prepare(
    'DELETE FROM slots WHERE figure IN (SELECT n FROM figures WHERE workspace = ? AND grouped = ?)',
  );
  const removeGroup = database.prepare('DELETE FROM figures WHERE workspace = ? AND grouped = ? AND held = 0');
  const clearGroup = database.prepare(
    'UPDATE figures SET spent = 0, ends = iif(rolling IS NULL, ends, 0) WHERE workspace = ? AND grouped = ?',
  );

  let cache = new Map<string, Kept>();
  let groups = new Map<string, Group>();
  let changed: Kept[] = [];

  function groupOf(workspace: number, group: string): Group {
    const name = `${workspace} ${group}`;
    const known = groups.get(name);
    if (known !== undefined) return known;
    const made: Group = { rows: 0, countedAt: 0, until: 0 };
    groups.set(name, made);
    return made;
  }

  /** Counting costs as much as there are counters, so it is not done more often than is useful. */
  function rowsOf(workspace: number, grouped: string, group: Group, now: number): number {
    if (now < group.until || now < group.countedAt + group.rows / 10) return group.rows;
    writeChanged();
    const row = countGroup.get(now, workspace, columnText(grouped));
    const until = row?.['until'];
    group.rows = integer(row?.['rows']);
    group.countedAt = now;
    group.until = typeof until === 'number' ? until : Number.MAX_SAFE_INTEGER;
    return group.rows;
  }

  function fromRow(row: SqlRow): Kept {
    const workspace = integer(row['workspace']);
    const grouped = plainText(row['grouped']);
    const rolling = row['rolling'];
    return {
      n: integer(row['n']),
      workspace,
      name: plainText(row['name']),
      grouped,
      group: groupOf(workspace, grouped),
      rollingMs: typeof rolling === 'number' ? rolling : null,
      text: plainText(row['text']),
      spent: integer(row['spent']),
      held: integer(row['held']),
      ends: integer(row['ends']),
      pruned: integer(row['pruned']),
      isStale: false,
      isChanged: false,
      slots: new Map(),
    };
  }

  function find(workspace: number, name: string, now: number): Kept | null {
    const place = `${workspace} ${name}`;
    let kept = cache.get(place);
    if (kept === undefined) {
      const row = workspace === 0 ? undefined : byName.get(workspace, columnText(name));
      if (row === undefined) return null;
      kept = fromRow(row);
      cache.set(ownText(place), kept);
    }
    age(kept, now);
    return kept;
  }

  function make(workspace: number, { name, span, group }: SumName, now: number): Kept {
    const kept: Kept = {
      n: 0,
      workspace,
      name: ownText(name),
      grouped: ownText(group),
      group: groupOf(workspace, group),
      rollingMs: span.kind === 'rolling' ? span.ms : null,
      text: '',
      spent: 0,
      held: 0,
      ends: span.kind === 'until' ? span.end : now,
      pruned: 0,
      isStale: false,
      isChanged: false,
      slots: new Map(),
    };
    cache.set(`${workspace} ${kept.name}`, kept);
    return kept;
  }

  function note(kept: Kept): void {
    if (kept.isChanged) return;
    kept.isChanged = true;
    changed.push(kept);
  }

  /** Subtracts the slots that have left a rolling window. */
  function age(kept: Kept, now: number): void {
    const { n, rollingMs } = kept;
    if (rollingMs === null) return;
    const floor = Math.floor((now - rollingMs) / slotWidth(rollingMs));
    if (floor <= kept.pruned) return;
    let gone = n === 0 || kept.spent === 0 ? 0 : integer(sumSlots.get(n, floor)?.['total']);
    // Slots below `pruned` that are still on disk were subtracted before.
    if (gone > 0 && kept.isStale) gone -= integer(sumSlots.get(n, kept.pruned)?.['total']);
    for (const [slot, amount] of kept.slots) {
      if (slot >= floor) continue;
      gone += amount;
      kept.slots.delete(slot);
    }
    kept.pruned = floor;
    if (gone === 0) return;
    kept.spent = Math.max(0, kept.spent - gone);
    kept.isStale = true;
    note(kept);
  }

  function writeChanged(): void {
    for (const kept of changed) write(kept);
    changed = [];
  }

  function write(kept: Kept): void {
    const { workspace, name, grouped, rollingMs, spent, held, ends, pruned } = kept;
    const text = columnText(kept.text);
    if (kept.n > 0) update.run(text, spent, held, ends, pruned, kept.n);
    else
      kept.n = insert.run(workspace, columnText(name), columnText(grouped), rollingMs, text, spent, held, ends, pruned);
    if (kept.isStale) dropSlots.run(kept.n, pruned);
    kept.isStale = false;
    kept.isChanged = false;
    if (kept.slots.size === 0) return;
    for (const [slot, amount] of kept.slots) addSlot.run(kept.n, slot, amount);
    kept.slots = new Map();
  }

  function counterOf(workspace: number, { name, group }: SumName, now: number): Counter {
    const kept = find(workspace, name, now);
    const rows = workspace === 0 ? 0 : rowsOf(workspace, group, groupOf(workspace, group), now);
    return kept === null ? { spent: 0, held: 0, rows } : { spent: kept.spent, held: kept.held, rows };
  }

  return {
    read: counterOf,
    /** Whether all sums stay within their limits if they are made one after the other, after the resets. */
    allow(workspace: number, sums: readonly SumChange[], resets: readonly string[], now: number): boolean {
      /** For each group, how many more counters count something after the sums so far. */
      let more: Map<string, number> | null = null;
      for (const { name, span, group, hold, spend, limit, most } of sums) {
        const kept = find(workspace, name, now);
        const anew = resets.length > 0 && resets.includes(group);
        const held = kept?.held ?? 0;
        const spent = kept === null || anew ? 0 : kept.spent;
        if (limit !== null && spent + held + hold + spend > limit) return false;
        if (most === null && sums.length === 1) continue;
        const ends = span.kind === 'until' ? span.end : kept === null || anew ? now : kept.ends;
        const counted = anew ? held > 0 : kept !== null && counts(kept.ends, held, now);
        const isSpent = span.kind === 'rolling' && spend > 0;
        const counting = isSpent || counts(ends, Math.max(0, held + hold), now);
        if (counted === counting) continue;
        const before = more?.get(group) ?? 0;
        if (most !== null && counting) {
          const rows = anew ? heldIn(workspace, group) : rowsOf(workspace, group, groupOf(workspace, group), now);
          if (rows + before + 1 > most) return false;
        }
        more ??= new Map();
        more.set(group, before + (counting ? 1 : -1));
      }
      return true;
    },
    reset(workspace: number, group: string): void {
      writeChanged();
      const name = columnText(group);
      dropGroupSlots.run(workspace, name);
      removeGroup.run(workspace, name);
      clearGroup.run(workspace, name);
      cache = new Map();
      groups = new Map();
    },
    /** @throws TypeError where the counter would pass its limit: whoever changes it has looked before */
    change(workspace: number, sum: SumChange, now: number): void {
      const { hold, spend, span, text, limit, most } = sum;
      const found = find(workspace, sum.name, now);
      const kept = found ?? make(workspace, sum, now);
      const counted = found !== null && counts(kept.ends, kept.held, now);
      // Count before the change is in memory, so that the result does not include it.
      rowsOf(workspace, kept.grouped, kept.group, now);
      if (limit !== null && kept.spent + kept.held + hold + spend > limit)
        throw new TypeError(`${sum.name} passes its limit`);
      kept.held = Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, kept.held + hold));
      kept.spent = Math.min(Number.MAX_SAFE_INTEGER, kept.spent + spend);
      if (spend !== 0 && span.kind === 'rolling') {
        const width = slotWidth(span.ms);
        const slot = Math.floor(now / width);
        kept.slots.set(slot, (kept.slots.get(slot) ?? 0) + spend);
        kept.ends = Math.max(kept.ends, (slot + 1) * width + span.ms);
      }
      if (text !== null) kept.text = ownText(text);
      note(kept);
      const counting = counts(kept.ends, kept.held, now);
      const { group } = kept;
      if (counting && kept.ends > now) group.until = Math.min(group.until, kept.ends);
      if (counting === counted) return;
      group.rows += counting ? 1 : -1;
      if (counting && most !== null && group.rows > most)
        throw new TypeError(`${sum.group} has more figures than it may`);
    },
    /** Counters that count something, by name, after a name. */
    list(workspace: number, after: string | null, limit: number, now: number): readonly SumListed[] {
      writeChanged();
      const rows =
        after === null
          ? selectFirst.all(workspace, now, limit)
          : selectNext.all(workspace, now, columnText(after), limit);
      return rows.map((row) => {
        const name = plainText(row['name']);
        const kept = find(workspace, name, now) ?? fromRow(row);
        const { grouped, group, text, spent, held } = kept;
        return { name, group: grouped, text, spent, held, rows: rowsOf(workspace, grouped, group, now) };
      });
    },
    prune(workspace: number, limit: number, now: number): number {
      writeChanged();
      const rows = selectOver.all(workspace, now, limit);
      for (const row of rows) {
        removeSlots.run(integer(row['n']));
        remove.run(integer(row['n']));
      }
      if (rows.length > 0) cache = new Map();
      return rows.length;
    },
    /** Writes what has changed since the last call. */
    flush(): void {
      writeChanged();
      // Not while a transaction runs, because its changes must stay in memory.
      if (cache.size <= CACHED && groups.size <= CACHED) return;
      cache = new Map();
      groups = new Map();
    },
    forget(): void {
      cache = new Map();
      groups = new Map();
      changed = [];
    },
  };

  function heldIn(workspace: number, group: string): number {
    writeChanged();
    return integer(countHeld.get(workspace, columnText(group))?.['rows']);
  }
}

function counts(ends: number, held: number, now: number): boolean {
  return ends > now || held > 0;
}

/** The width of one slot of a rolling counter, ms. */
function slotWidth(rollingMs: number): number {
  return Math.max(1, Math.ceil(rollingMs / SLOTS));
}
