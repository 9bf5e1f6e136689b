import type { LedgerDraft, LedgerEvent } from '../../effects/ledger.ts';
import type { SqlDatabase, SqlRow } from './driver.ts';
import { columnText, decode, integer } from './document.ts';

/** Steps in one row at most: reading the events of one effect means reading a row. */
const STEPS_PER_ROW = 64;

export interface LedgerTable {
  /** The `seq` of the next event. */
  nextSeq(workspace: string): number;
  /** The row that the events of the next step go into. */
  row(workspace: string, epoch: number, at: number): number;
  /** @param named effects whose own row names that ledger row already */
  append(workspace: string, row: number, events: readonly LedgerDraft[], named: readonly string[]): void;
  ofEffect(workspace: string, effectId: string): readonly LedgerEvent[];
  after(workspace: string, seq: number, limit: number): readonly LedgerEvent[];
  /** Newest first. */
  before(workspace: string, seq: number | null, limit: number): readonly LedgerEvent[];
  /** Writes what was gathered in memory. */
  flush(): void;
  forget(): void;
}

/** A row that is being gathered. */
interface OpenRow {
  readonly n: number;
  readonly workspace: string;
  readonly epoch: number;
  readonly at: number;
  readonly seq: number;
  size: number;
  /** A text for each step. */
  readonly steps: string[];
}

/**
 * The append-only ledger. The steps of a transaction share a row, written at its end: a row and its indexes for each
 * step were a fifth of what a step costs. Where the events of an effect are stands with the effect for the steps that
 * write it, and in `mentions` for the others.
 */
export function openLedgerTable(database: SqlDatabase): LedgerTable {
  const lastRow = database.prepare('SELECT max(n) AS n FROM ledger');
  const last = database.prepare('SELECT seq, size FROM ledger WHERE workspace = ? ORDER BY seq DESC LIMIT 1');
  const insert = database.prepare(
    'INSERT INTO ledger (n, workspace, epoch, seq, size, at, events) VALUES (?, ?, ?, ?, ?, ?, ?)',
  );
  const mention = database.prepare('INSERT OR IGNORE INTO mentions (effect, ledger) VALUES (?, ?)');
  const columns = 'workspace, epoch, seq, size, at, events';
  const byEffect = database.prepare(
    `SELECT ${columns} FROM ledger WHERE workspace = ? AND n IN (
      SELECT ledger FROM effects WHERE id = ?
      UNION SELECT lives.ledger FROM effects JOIN lives USING (n) WHERE id = ?
      UNION SELECT ledger FROM mentions WHERE effect = ?
    ) ORDER BY seq`,
  );
  const rowFrom = database.prepare(
    `SELECT ${columns} FROM ledger WHERE workspace = ? AND seq >= ? ORDER BY seq LIMIT 1`,
  );
  const wholeBefore = database.prepare(
    `SELECT ${columns} FROM ledger WHERE workspace = ? AND seq < ? ORDER BY seq DESC LIMIT 1`,
  );
  const rowBefore = database.prepare(
    'SELECT seq FROM ledger WHERE workspace = ? AND seq <= ? ORDER BY seq DESC LIMIT 1',
  );
  const next = new Map<string, number>();
  /** Rows of this transaction, and of each workspace the one that grows. */
  let rows: OpenRow[] = [];
  let growing = new Map<string, OpenRow>();
  let highestRow: number | null = null;

  function nextSeq(workspace: string): number {
    const known = next.get(workspace);
    if (known !== undefined) return known;
    const row = last.get(columnText(workspace));
    const seq = row === undefined ? 1 : integer(row['seq']) + integer(row['size']);
    next.set(workspace, seq);
    return seq;
  }

  function flush(): void {
    for (const { n, workspace, epoch, seq, size, at, steps } of rows)
      insert.run(n, columnText(workspace), epoch, seq, size, at, `[${steps.join(',')}]`);
    rows = [];
    growing = new Map();
  }

  return {
    nextSeq,
    row(workspace, epoch, at) {
      const there = growing.get(workspace);
      if (there !== undefined && there.steps.length < STEPS_PER_ROW) return there.n;
      highestRow = (highestRow ?? integer(lastRow.get()?.['n'] ?? 0)) + 1;
      const row: OpenRow = { n: highestRow, workspace, epoch, at, seq: nextSeq(workspace), size: 0, steps: [] };
      rows.push(row);
      growing.set(workspace, row);
      return row.n;
    },
    append(workspace, n, events, named) {
      const row = growing.get(workspace);
      if (row?.n !== n) throw new TypeError('events go into the row that was asked for');
      const step: EventTuple[] = [];
      let mentioned: string | null = null;
      for (const { kind, actor, data, effectId } of events) {
        step.push([effectId, kind, actor.type, actor.id, data]);
        if (effectId === null || effectId === mentioned || named.includes(effectId)) continue;
        mention.run(columnText(effectId), n);
        mentioned = effectId;
      }
      row.steps.push(JSON.stringify(step));
      row.size += events.length;
      next.set(workspace, row.seq + row.size);
    },
    ofEffect(workspace, effectId) {
      flush();
      const id = columnText(effectId);
      return byEffect
        .all(columnText(workspace), id, id, id)
        .flatMap(eventsOf)
        .filter((event) => event.effectId === effectId);
    },
    after(workspace, seq, limit) {
      flush();
      const place = columnText(workspace);
      const first = rowBefore.get(place, Math.max(seq, 0));
      let start = first === undefined ? 0 : integer(first['seq']);
      const events: LedgerEvent[] = [];
      while (events.length < limit) {
        const row = rowFrom.get(place, start);
        if (row === undefined) break;
        for (const event of eventsOf(row)) if (event.seq > seq) events.push(event);
        start = integer(row['seq']) + integer(row['size']);
      }
      return events.slice(0, limit);
    },
    before(workspace, seq, limit) {
      flush();
      const place = columnText(workspace);
      let end = seq ?? Number.MAX_SAFE_INTEGER;
      const events: LedgerEvent[] = [];
      while (events.length < limit) {
        const row = wholeBefore.get(place, end);
        if (row === undefined) break;
        for (const event of eventsOf(row).toReversed()) if (event.seq < end) events.push(event);
        end = integer(row['seq']);
      }
      return events.slice(0, limit);
    },
    flush,
    forget() {
      next.clear();
      growing = new Map();
      rows = [];
      highestRow = null;
    },
  };
}

type EventTuple = readonly [
  effectId: string | null,
  kind: LedgerDraft['kind'],
  actorType: LedgerDraft['actor']['type'],
  actorId: string,
  data: LedgerDraft['data'],
];

function eventsOf(row: SqlRow): readonly LedgerEvent[] {
  const first = integer(row['seq']);
  const epoch = integer(row['epoch']);
  const at = integer(row['at']);
  const steps = decode<readonly (readonly EventTuple[])[]>(row['events']);
  return steps.flat().map(([effectId, kind, type, id, data], index) => {
    const seq = first + index;
    return { seq, id: `evt_${epoch}_${seq}`, at, kind, effectId, actor: { type, id }, data };
  });
}
