import type { LedgerDraft, LedgerEvent } from '../../effects/ledger.ts';
import type { SqlDatabase, SqlRow } from './driver.ts';
import { columnText, decode, integer, plainText } from './document.ts';

export interface LedgerTable {
  /** The `seq` of the next event. */
  nextSeq(workspace: string): number;
  append(workspace: string, epoch: number, at: number, events: readonly LedgerDraft[]): void;
  ofEffect(workspace: string, effectId: string): readonly LedgerEvent[];
  after(workspace: string, seq: number, limit: number): readonly LedgerEvent[];
  forget(): void;
}

/** The append-only ledger: one row per step (per effect, where a step speaks of several), the events inside it. */
export function openLedgerTable(database: SqlDatabase): LedgerTable {
  const last = database.prepare('SELECT seq, size FROM ledger WHERE workspace = ? ORDER BY seq DESC LIMIT 1');
  const insert = database.prepare(
    'INSERT INTO ledger (workspace, epoch, seq, size, effect, at, events) VALUES (?, ?, ?, ?, ?, ?, ?)',
  );
  const columns = 'epoch, seq, at, effect, events';
  const byEffect = database.prepare(`SELECT workspace, ${columns} FROM ledger WHERE effect = ? ORDER BY seq`);
  const from = database.prepare(
    `SELECT ${columns} FROM ledger WHERE workspace = ? AND seq + size - 1 > ? AND seq >= ? ORDER BY seq LIMIT ?`,
  );
  const rowBefore = database.prepare(
    'SELECT seq FROM ledger WHERE workspace = ? AND seq <= ? ORDER BY seq DESC LIMIT 1',
  );
  const next = new Map<string, number>();

  function nextSeq(workspace: string): number {
    const known = next.get(workspace);
    if (known !== undefined) return known;
    const row = last.get(columnText(workspace));
    const seq = row === undefined ? 1 : integer(row['seq']) + integer(row['size']);
    next.set(workspace, seq);
    return seq;
  }

  return {
    nextSeq,
    append(workspace, epoch, at, events) {
      let seq = nextSeq(workspace);
      let group: EventTuple[] = [];
      for (const [index, { kind, actor, data, effectId }] of events.entries()) {
        group.push([kind, actor.type, actor.id, data]);
        if (events[index + 1]?.effectId === effectId) continue;
        const effect = effectId === null ? null : columnText(effectId);
        insert.run(columnText(workspace), epoch, seq, group.length, effect, at, JSON.stringify(group));
        seq += group.length;
        group = [];
      }
      next.set(workspace, seq);
    },
    ofEffect: (workspace, effectId) =>
      byEffect
        .all(columnText(effectId))
        .filter((row) => row['workspace'] === columnText(workspace))
        .flatMap(eventsOf),
    after(workspace, seq, limit) {
      const first = rowBefore.get(columnText(workspace), Math.max(seq, 0));
      const start = first === undefined ? 0 : integer(first['seq']);
      return from
        .all(columnText(workspace), seq, start, limit)
        .flatMap(eventsOf)
        .filter((event) => event.seq > seq)
        .slice(0, limit);
    },
    forget: () => next.clear(),
  };
}

/** An event within its row, which knows the effect. */
type EventTuple = readonly [
  kind: LedgerDraft['kind'],
  actorType: LedgerDraft['actor']['type'],
  actorId: string,
  data: LedgerDraft['data'],
];

function eventsOf(row: SqlRow): readonly LedgerEvent[] {
  const first = integer(row['seq']);
  const epoch = integer(row['epoch']);
  const at = integer(row['at']);
  const effectId = row['effect'] === null ? null : plainText(row['effect']);
  return decode<readonly EventTuple[]>(row['events']).map(([kind, type, id, data], index) => {
    const seq = first + index;
    return { seq, id: `evt_${epoch}_${seq}`, at, kind, effectId, actor: { type, id }, data };
  });
}
