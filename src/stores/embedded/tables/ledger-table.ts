import type { EventDraft, LedgerEntry, LedgerQuery } from '../../port.ts';
import { bulk, type SqlDatabase, type SqlRow, type SqlStatement, type SqlValue } from '../driver.ts';
import { columnText, integer, plainText } from './columns.ts';

/** The most changes in one row: reading the events about one id means reading whole rows. */
const CHANGES_PER_ROW = 64;

interface OpenRow {
  readonly n: number;
  readonly workspace: number;
  readonly seq: number;
  size: number;
  changes: number;
  /** For each event, the length of `about` (-1: none) and of the text. */
  readonly lengths: number[];
  readonly parts: string[];
}

/**
 * The append-only ledger. The changes of a transaction share one row, which is written at its end. A row with its
 * indexes for each change would be a fifth of the cost of a change.
 */
export function openLedgerTable(database: SqlDatabase) {
  const lastRow = database.prepare('SELECT max(n) AS n FROM ledger');
  const last = database.prepare('SELECT seq, size FROM ledger WHERE workspace = ? ORDER BY seq DESC LIMIT 1');
  const insert = database.prepare(
    'INSERT INTO ledger (n, workspace, seq, size, epoch, at, events) VALUES (?, ?, ?, ?, ?, ?, ?)',
  );
  const mention = bulk(database, 'INSERT OR IGNORE INTO mentions (id, ledger) VALUES', '(?, ?)');
  const next = new Map<number, number>();
  let rows: OpenRow[] = [];
  let growing = new Map<number, OpenRow>();
  let highest: number | null = null;

  /** The `seq` of the next event. */
  function nextSeq(workspace: number): number {
    const known = next.get(workspace);
    if (known !== undefined) return known;
    const row = last.get(workspace);
    const seq = row === undefined ? 1 : integer(row['seq']) + integer(row['size']);
    next.set(workspace, seq);
    return seq;
  }

  function rowFor(workspace: number): OpenRow {
    const there = growing.get(workspace);
    if (there !== undefined && there.changes < CHANGES_PER_ROW) return there;
    highest = (highest ?? integer(lastRow.get()?.['n'] ?? 0)) + 1;
    const row = { n: highest, workspace, seq: nextSeq(workspace), size: 0, changes: 0, lengths: [], parts: [] };
    rows.push(row);
    growing.set(workspace, row);
    return row;
  }

  return {
    nextSeq,
    append(workspace: number, events: readonly EventDraft[]): void {
      const row = rowFor(workspace);
      const { n, lengths, parts } = row;
      let mentioned: string | null = null;
      for (const { about, text } of events) {
        lengths.push(about?.length ?? -1, text.length);
        if (about !== null) parts.push(about);
        parts.push(text);
        if (about === null || about === mentioned) continue;
        mention.add(columnText(about), n);
        mentioned = about;
      }
      row.changes += 1;
      row.size += events.length;
      next.set(workspace, row.seq + row.size);
    },
    flush(epoch: number, at: number): void {
      if (rows.length === 0) return;
      for (const { n, workspace, seq, size, lengths, parts } of rows)
        insert.run(n, workspace, seq, size, epoch, at, columnText(`${lengths.join(',')};${parts.join('')}`));
      mention.flush();
      rows = [];
      growing = new Map();
    },
    forget(): void {
      next.clear();
      rows = [];
      growing = new Map();
      highest = null;
      mention.forget();
    },
  };
}

/** Reads events, row by row. */
export function openLedgerReader(
  database: SqlDatabase,
): (workspace: number, slice: Omit<LedgerQuery, 'workspace'>) => readonly LedgerEntry[] {
  const columns = 'ledger.n AS n, seq, size, epoch, at, events';
  const one = (condition: string): SqlStatement =>
    database.prepare(`SELECT ${columns} FROM ledger WHERE workspace = ? AND ${condition} LIMIT 1`);
  const at = one('seq <= ? ORDER BY seq DESC');
  const nextUp = one('seq > ? ORDER BY seq');
  const nextDown = one('seq < ? ORDER BY seq DESC');
  const about = (condition: string): SqlStatement =>
    database.prepare(
      `SELECT ${columns} FROM mentions JOIN ledger ON ledger.n = mentions.ledger WHERE workspace = ? AND mentions.id = ? AND ${condition} LIMIT 1`,
    );
  const aboutUp = about('mentions.ledger > ? ORDER BY mentions.ledger');
  const aboutDown = about('mentions.ledger < ? ORDER BY mentions.ledger DESC');

  return (workspace, { about: id, order, after, limit }) => {
    const isUp = order === 'up';
    const from = after ?? (isUp ? 0 : Number.MAX_SAFE_INTEGER);
    const first = from === 0 ? undefined : at.get(workspace, from);
    const step = (row: SqlRow | null): SqlRow | undefined => {
      if (id === null) return (isUp ? nextUp : nextDown).get(workspace, integer(row?.['seq'] ?? (isUp ? 0 : from)));
      const edge: SqlValue = row?.['n'] ?? (isUp ? 0 : Number.MAX_SAFE_INTEGER);
      return (isUp ? aboutUp : aboutDown).get(workspace, columnText(id), edge);
    };
    const wanted = (entry: LedgerEntry): boolean =>
      (id === null || entry.about === id) && (isUp ? entry.seq > from : entry.seq < from);
    const entries: LedgerEntry[] = [];
    const take = (row: SqlRow): void => {
      const all = eventsOf(row).filter(wanted);
      entries.push(...(isUp ? all : all.toReversed()));
    };
    for (let row = first ?? step(null); row !== undefined && entries.length < limit; row = step(row)) take(row);
    return entries.slice(0, limit);
  };
}

function eventsOf(row: SqlRow): readonly LedgerEntry[] {
  const column = plainText(row['events']);
  const begin = column.indexOf(';');
  const lengths = column.slice(0, begin).split(',').map(Number);
  const first = integer(row['seq']);
  const epoch = integer(row['epoch']);
  const at = integer(row['at']);
  let place = begin + 1;
  const next = (length: number): string => column.slice(place, (place += length));
  return Array.from({ length: lengths.length / 2 }, (_, index) => {
    const aboutLength = lengths[2 * index] ?? -1;
    const about = aboutLength < 0 ? null : next(aboutLength);
    return { seq: first + index, epoch, at, about, text: next(lengths[2 * index + 1] ?? 0) };
  });
}
