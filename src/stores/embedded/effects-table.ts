import type { Decision } from '../../effects/decision.ts';
import type { EffectRecord, EffectState, Tombstone } from '../../effects/effect.ts';
import type { Binding, EffectWrite } from '../../effects/plan.ts';
import type { EffectFilter, Page } from '../../effects/store.ts';
import type { SqlDatabase, SqlRow, SqlValue } from './driver.ts';
import { columnText, decode, integer, text } from './document.ts';

/** State of a row whose record is gone; its document is a tombstone. */
const TOMBSTONE = 'tombstone';

/** A place in the table, and what stands there. */
interface Placed {
  readonly n: number;
  readonly binding: Binding;
}

export interface EffectName {
  readonly workspace: string;
  readonly id: string;
}

export interface EffectsTable {
  binding(workspace: string, key: string): Binding | null;
  effect(workspace: string, id: string): EffectRecord | null;
  tombstone(workspace: string, id: string): Tombstone | null;
  put(write: EffectWrite): void;
  page(workspace: string, filter: EffectFilter): Page<EffectRecord>;
  /** Executing effects whose `lease_end` is at or before `at`; any where `at` is `null`. */
  executing(at: number | null, limit: number): readonly EffectName[];
  /** Settled effects whose settlement is before `before`, oldest first. */
  settledBefore(
    state: 'committed' | 'failed' | 'rejected' | 'denied',
    before: number,
    limit: number,
  ): readonly EffectRecord[];
  bury(tombstone: Tombstone): void;
  /** Removes an effect without a trace (denials whose retention is over). */
  remove(id: string): void;
  /** Removes tombstones of effects settled before `before`. */
  removeTombstones(before: number, limit: number): number;
  /** The document that was written or read for a record, where it is known. */
  documentOf(record: object): string | undefined;
  /** To be called between steps: what was looked up is looked up again. */
  endStep(): void;
  /** Forgets what is cached: the transaction was rolled back, or another process wrote. */
  forget(): void;
}

/** Effects and tombstones. Executing effects are cached: their owner is about to settle them. */
export function openEffectsTable(database: SqlDatabase): EffectsTable {
  const columns = 'n, workspace, state, doc';
  const byKey = database.prepare(`SELECT ${columns} FROM effects WHERE workspace = ? AND key = ?`);
  const byId = database.prepare(`SELECT ${columns} FROM effects WHERE id = ?`);
  const insert = database.prepare(
    'INSERT INTO effects (id, workspace, key, state, decision, at, tool, agent, created, doc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const update = database.prepare('UPDATE effects SET state = ?, decision = ?, at = ?, doc = ? WHERE n = ?');
  const setKey = database.prepare('UPDATE effects SET key = ? WHERE n = ?');
  const clearKey = database.prepare('UPDATE effects SET key = NULL WHERE workspace = ? AND key = ?');
  const byState = database.prepare('SELECT n, doc FROM effects WHERE state = ? AND at <= ? ORDER BY at LIMIT ?');
  const bury = database.prepare('UPDATE effects SET state = ?, doc = ? WHERE id = ?');
  const remove = database.prepare('DELETE FROM effects WHERE id = ?');
  const expired = database.prepare('SELECT n FROM effects WHERE state = ? AND at < ? ORDER BY at LIMIT ?');
  const removeRow = database.prepare('DELETE FROM effects WHERE n = ?');

  const executing = new Map<string, { readonly n: number; readonly record: EffectRecord }>();
  const documents = new WeakMap<object, string>();
  /** Places that this step has looked at, by effect id. */
  const seen = new Map<string, number>();

  function read(row: SqlRow | undefined): Placed | null {
    if (row === undefined) return null;
    const document = text(row['doc']);
    const n = integer(row['n']);
    if (row['state'] === TOMBSTONE) {
      const tombstone = decode<Tombstone>(document);
      seen.set(tombstone.id, n);
      return { n, binding: { kind: 'tombstone', tombstone } };
    }
    const effect = decode<EffectRecord>(document);
    documents.set(effect, document);
    seen.set(effect.id, n);
    return { n, binding: { kind: 'effect', effect } };
  }

  function find(workspace: string, id: string): Binding | null {
    const row = byId.get(columnText(id));
    return row === undefined || row['workspace'] !== columnText(workspace) ? null : (read(row)?.binding ?? null);
  }

  return {
    binding: (workspace, key) => read(byKey.get(columnText(workspace), columnText(key)))?.binding ?? null,
    effect(workspace, id) {
      const cached = executing.get(id);
      if (cached !== undefined && cached.record.workspace === workspace) return cached.record;
      const found = find(workspace, id);
      return found?.kind === 'effect' ? found.effect : null;
    },
    tombstone(workspace, id) {
      const found = find(workspace, id);
      return found?.kind === 'tombstone' ? found.tombstone : null;
    },
    put({ record, binding }) {
      const { id, life } = record;
      const document = JSON.stringify(record);
      documents.set(record, document);
      const cached = executing.get(id);
      const key = columnText(record.idempotencyKey);
      const workspace = columnText(record.workspace);
      if (binding === 'bind') clearKey.run(workspace, key);
      let n = cached?.n ?? seen.get(id);
      if (n === undefined) {
        n = insert.run(
          columnText(id),
          workspace,
          binding === 'bind' ? key : null,
          life.state,
          decisionOf(record),
          searchedTime(record),
          columnText(record.action.tool),
          columnText(record.actor.agentId),
          record.createdAt,
          document,
        );
      } else {
        update.run(life.state, decisionOf(record), searchedTime(record), document, n);
        if (binding !== 'keep') setKey.run(binding === 'bind' ? key : null, n);
      }
      seen.set(id, n);
      if (life.state === 'executing') executing.set(id, { n, record });
      else if (cached !== undefined) executing.delete(id);
    },
    page: (workspace, filter) => readPage(database, workspace, filter),
    executing: (at, limit) =>
      byState.all('executing', at ?? Number.MAX_SAFE_INTEGER, limit).map((row) => {
        const { workspace, id } = decode<EffectRecord>(row['doc']);
        return { workspace, id };
      }),
    settledBefore: (state, before, limit) =>
      byState.all(state, before - 1, limit).map((row) => decode<EffectRecord>(row['doc'])),
    bury(tombstone) {
      bury.run(TOMBSTONE, JSON.stringify(tombstone), columnText(tombstone.id));
    },
    remove(id) {
      remove.run(columnText(id));
    },
    removeTombstones(before, limit) {
      const rows = expired.all(TOMBSTONE, before, limit);
      for (const row of rows) removeRow.run(integer(row['n']));
      return rows.length;
    },
    documentOf: (record) => documents.get(record),
    endStep: () => seen.clear(),
    forget() {
      executing.clear();
      seen.clear();
    },
  };
}

/** The decision that a reader of the record is told; lists are filtered by it. */
function decisionOf(effect: EffectRecord): Decision {
  const { life } = effect;
  switch (life.state) {
    case 'pending_approval':
      return 'pending_approval';
    case 'executing':
      return 'in_progress';
    case 'committed':
      return 'committed';
    case 'failed':
      return 'failed';
    case 'unknown':
      return 'unknown_effect';
    case 'rejected':
      return 'denied_policy';
    case 'denied':
      return life.decision;
  }
}

function searchedTime({ life, createdAt }: EffectRecord): number {
  switch (life.state) {
    case 'pending_approval':
      return createdAt;
    case 'executing':
      return life.lease.leaseEnd;
    default:
      return life.at;
  }
}

/** States that few effects are in at a time: searched by state; the others by agent, tool or time. */
const RARE: readonly EffectState[] = ['pending_approval', 'executing', 'unknown', 'rejected'];

/** Newest first: rows stand in the order in which effects were made, and the store's time never goes back. */
function readPage(database: SqlDatabase, workspace: string, filter: EffectFilter): Page<EffectRecord> {
  const where = ['workspace = ?', `state <> '${TOMBSTONE}'`];
  const values: SqlValue[] = [columnText(workspace)];
  const ask = (condition: string, ...operands: SqlValue[]): void => {
    where.push(condition);
    values.push(...operands);
  };
  let index = 'effects_created';
  if (filter.tool !== null) index = 'effects_tool';
  if (filter.agentId !== null) index = 'effects_agent';
  if (filter.state !== null && RARE.includes(filter.state)) index = 'effects_state';
  if (filter.state !== null) ask('state = ?', filter.state);
  if (filter.decision !== null) ask('decision = ?', filter.decision);
  if (filter.tool !== null) ask('tool = ?', columnText(filter.tool));
  if (filter.agentId !== null) ask('agent = ?', columnText(filter.agentId));
  if (filter.since !== null) {
    ask('created >= ?', filter.since);
    // Rows stand in order of time: this bounds the search along every index.
    ask(
      'n >= coalesce((SELECT n FROM effects INDEXED BY effects_created WHERE workspace = ? AND created >= ? ORDER BY created, n LIMIT 1), 0)',
      columnText(workspace),
      filter.since,
    );
  }
  if (filter.until !== null) {
    ask('created < ?', filter.until);
    ask(
      'n <= coalesce((SELECT n FROM effects INDEXED BY effects_created WHERE workspace = ? AND created < ? ORDER BY created DESC, n DESC LIMIT 1), 0)',
      columnText(workspace),
      filter.until,
    );
  }
  const cursor = parseCursor(filter.cursor);
  if (cursor !== null) {
    ask('n < ?', cursor.n);
    ask('created <= ?', cursor.created);
  }
  const order = index === 'effects_created' ? 'created DESC, n DESC' : 'n DESC';
  const rows = database
    .prepare(
      `SELECT n, created, doc FROM effects INDEXED BY ${index} WHERE ${where.join(' AND ')} ORDER BY ${order} LIMIT ?`,
    )
    .all(...values, filter.limit + 1);
  const shown = rows.slice(0, filter.limit);
  const last = shown.at(-1);
  return {
    items: shown.map((row) => decode<EffectRecord>(row['doc'])),
    next:
      rows.length > filter.limit && last !== undefined
        ? `${integer(last['created']).toString(36)}.${integer(last['n']).toString(36)}`
        : null,
  };
}

/** A cursor that this store did not make begins at the start. */
function parseCursor(cursor: string | null): { readonly created: number; readonly n: number } | null {
  const match = /^([0-9a-z]{1,11})\.([0-9a-z]{1,11})$/.exec(cursor ?? '');
  if (match === null) return null;
  return { created: Number.parseInt(match[1] ?? '', 36), n: Number.parseInt(match[2] ?? '', 36) };
}
