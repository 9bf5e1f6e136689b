import { decisionOf } from '../../effects/effect-decision.ts';
import type { Decision } from '../../effects/decision.ts';
import type { EffectRecord, EffectState, Tombstone } from '../../effects/effect.ts';
import type { Binding, EffectWrite } from '../../effects/plan.ts';
import type { AdmitRequest, EffectFilter, Page } from '../../effects/store.ts';
import type { SqlDatabase, SqlRow, SqlValue } from './driver.ts';
import { columnText, decode, integer } from './document.ts';
import {
  ADMITTED_AT,
  decodeCall,
  decodeEffect,
  encodeCall,
  encodeLife,
  encodeTerms,
  sameCall,
} from './effect-document.ts';

/** State of a row whose record is gone; its document is a tombstone. */
const TOMBSTONE = 'tombstone';

/** A record and where it stands. */
interface Placed {
  readonly n: number;
  readonly record: EffectRecord;
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
  /**
   * @param lostBefore executing effects that were admitted before then (ms) are found among the unknown ones; `null`:
   * there are none
   */
  page(workspace: string, filter: EffectFilter, lostBefore: number | null): Page<EffectRecord>;
  /** Executing effects whose `lease_end` is at or before `at`. */
  executing(at: number, limit: number): readonly EffectName[];
  /** Executing effects that were admitted before `at`. */
  admittedBefore(at: number, limit: number): readonly EffectName[];
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
  /** Has the text of the call that the next step asks for, so that the effect it makes need not be written as text. */
  expect(request: AdmitRequest, call: string | null): void;
  /** To be called between steps: what was looked up is looked up again. */
  endStep(): void;
  /** Forgets what is cached: the transaction was rolled back, or another process wrote. */
  forget(): void;
}

/** Effects and tombstones. Executing effects are cached: their owner is about to settle them. */
export function openEffectsTable(database: SqlDatabase): EffectsTable {
  const columns = 'n, workspace, state, call, terms, life';
  const byKey = database.prepare(`SELECT ${columns} FROM effects WHERE workspace = ? AND key = ?`);
  const byId = database.prepare(`SELECT ${columns} FROM effects WHERE id = ?`);
  const insert = database.prepare(
    'INSERT INTO effects (id, workspace, key, state, decision, at, tool, agent, created, call, terms, life) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const update = database.prepare('UPDATE effects SET state = ?, decision = ?, at = ?, life = ? WHERE n = ?');
  const setCall = database.prepare('UPDATE effects SET tool = ?, agent = ?, call = ?, terms = ? WHERE n = ?');
  const setKey = database.prepare('UPDATE effects SET key = ? WHERE n = ?');
  const clearKey = database.prepare('UPDATE effects SET key = NULL WHERE workspace = ? AND key = ?');
  const byState = database.prepare(
    'SELECT call, terms, life FROM effects WHERE state = ? AND at <= ? ORDER BY at LIMIT ?',
  );
  const byAdmission = database.prepare(
    `SELECT call FROM effects INDEXED BY effects_state WHERE state = 'executing' AND ${ADMITTED_AT} < ? LIMIT ?`,
  );
  const bury = database.prepare("UPDATE effects SET state = ?, call = '', terms = '', life = ? WHERE id = ?");
  const remove = database.prepare('DELETE FROM effects WHERE id = ?');
  const expired = database.prepare('SELECT n FROM effects WHERE state = ? AND at < ? ORDER BY at LIMIT ?');
  const removeRow = database.prepare('DELETE FROM effects WHERE n = ?');

  const executing = new Map<string, Placed>();
  /** What this step has looked at or written, by effect id. */
  const seen = new Map<string, Placed | { readonly n: number; readonly record: null }>();
  /** A key that this step has found bound to nothing. */
  let free: string | null = null;
  let expected: { readonly request: AdmitRequest; readonly call: string } | null = null;

  function read(row: SqlRow | undefined): Binding | null {
    if (row === undefined) return null;
    const n = integer(row['n']);
    if (row['state'] === TOMBSTONE) {
      const tombstone = decode<Tombstone>(row['life']);
      seen.set(tombstone.id, { n, record: null });
      return { kind: 'tombstone', tombstone };
    }
    const effect = decodeEffect(row);
    seen.set(effect.id, { n, record: effect });
    return { kind: 'effect', effect };
  }

  function find(workspace: string, id: string): Binding | null {
    const row = byId.get(columnText(id));
    return row === undefined || row['workspace'] !== columnText(workspace) ? null : read(row);
  }

  /** The text of a record's call; the one at hand where it is of this very call. */
  function callOf(record: EffectRecord): string {
    if (expected === null || expected.request.effectId !== record.id) return encodeCall(record);
    return sameCall(expected.request, record) ? expected.call : encodeCall(record);
  }

  return {
    binding(workspace, key) {
      const place = [columnText(workspace), columnText(key)] as const;
      const found = read(byKey.get(...place));
      free = found === null ? place.join('\0') : null;
      return found;
    },
    effect(workspace, id) {
      const cached = executing.get(id);
      if (cached !== undefined && cached.record.workspace === workspace) {
        seen.set(id, cached);
        return cached.record;
      }
      const found = find(workspace, id);
      return found?.kind === 'effect' ? found.effect : null;
    },
    tombstone(workspace, id) {
      const found = find(workspace, id);
      return found?.kind === 'tombstone' ? found.tombstone : null;
    },
    put({ record, binding }) {
      const { id, life } = record;
      // A record that the step has not looked at is a new one.
      const there = seen.get(id);
      const before = there?.record ?? null;
      const key = columnText(record.idempotencyKey);
      const workspace = columnText(record.workspace);
      const tool = columnText(record.action.tool);
      const agent = columnText(record.actor.agentId);
      if (binding === 'bind' && free !== `${workspace}\0${key}`) clearKey.run(workspace, key);
      free = null;
      let n = there?.n;
      if (n === undefined) {
        const bound = binding === 'bind' ? key : null;
        const { createdAt } = record;
        const [decision, at] = [decisionOf(record), searchedTime(record)];
        n = insert.run(
          columnText(id),
          workspace,
          bound,
          life.state,
          decision,
          at,
          tool,
          agent,
          createdAt,
          callOf(record),
          encodeTerms(record),
          encodeLife(record),
        );
      } else {
        update.run(life.state, decisionOf(record), searchedTime(record), encodeLife(record), n);
        if (before === null || !isSameAttempt(record, before)) {
          setCall.run(tool, agent, callOf(record), encodeTerms(record), n);
        }
        if (binding !== 'keep') setKey.run(binding === 'bind' ? key : null, n);
      }
      const placed: Placed = { n, record };
      seen.set(id, placed);
      if (life.state === 'executing') executing.set(id, placed);
      else executing.delete(id);
    },
    page: (workspace, filter, lostBefore) => readPage(database, workspace, filter, lostBefore),
    executing: (at, limit) => byState.all('executing', at, limit).map(nameOf),
    admittedBefore: (at, limit) => byAdmission.all(at, limit).map(nameOf),
    settledBefore: (state, before, limit) => byState.all(state, before - 1, limit).map((row) => decodeEffect(row)),
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
    expect(request, call) {
      expected = call === null ? null : { request, call };
    },
    endStep() {
      seen.clear();
      free = null;
    },
    forget() {
      executing.clear();
      seen.clear();
    },
  };
}

function nameOf(row: SqlRow): EffectName {
  const { workspace, id } = decodeCall(row['call']);
  return { workspace, id };
}

/** Whether two records were asked for and admitted alike, so that only what became of them differs. */
function isSameAttempt(a: EffectRecord, b: EffectRecord): boolean {
  return sameCall(a, b) && a.trace === b.trace && a.holds === b.holds;
}

function searchedTime({ life, createdAt }: EffectRecord): number {
  switch (life.state) {
    case 'pending_approval':
      return createdAt;
    case 'executing':
      return life.lease.leaseEnd;
    case 'committed':
    case 'failed':
    case 'unknown':
    case 'rejected':
    case 'denied':
      return life.at;
  }
}

/** States that few effects are in at a time: searched by state; the others by agent, tool or time. */
const RARE: readonly EffectState[] = ['pending_approval', 'executing', 'unknown', 'rejected'];

/** Decisions that say the state of an effect which may be lost. */
const STATE_OF: Readonly<Partial<Record<Decision, EffectState>>> = {
  in_progress: 'executing',
  unknown_effect: 'unknown',
};

/** Newest first: rows stand in the order in which effects were made, and the store's time never goes back. */
function readPage(
  database: SqlDatabase,
  workspace: string,
  filter: EffectFilter,
  lostBefore: number | null,
): Page<EffectRecord> {
  const where = ['workspace = ?', `state <> '${TOMBSTONE}'`];
  const values: SqlValue[] = [columnText(workspace)];
  const ask = (condition: string, ...operands: SqlValue[]): void => {
    where.push(condition);
    values.push(...operands);
  };
  let index = 'INDEXED BY effects_created';
  let order = 'created DESC, n DESC';
  if (filter.tool !== null) [index, order] = ['INDEXED BY effects_tool', 'n DESC'];
  if (filter.agentId !== null) [index, order] = ['INDEXED BY effects_agent', 'n DESC'];
  const askState = (state: EffectState | null, otherwise: string, value: string): void => {
    if (lostBefore !== null && state === 'executing') ask(`state = 'executing' AND ${ADMITTED_AT} >= ?`, lostBefore);
    else if (lostBefore !== null && state === 'unknown')
      ask(`(state = 'unknown' OR state = 'executing' AND ${ADMITTED_AT} < ?)`, lostBefore);
    else ask(otherwise, value);
  };
  if (filter.state !== null && RARE.includes(filter.state)) {
    // Their places come from the index alone and stand in order: only rows of this page are read, however many there are.
    [index, order] = ['NOT INDEXED', 'n DESC'];
    const states = lostBefore !== null && filter.state === 'unknown' ? "'unknown', 'executing'" : `'${filter.state}'`;
    ask(`n IN (SELECT n FROM effects INDEXED BY effects_state WHERE state IN (${states}))`);
  }
  if (filter.state !== null) askState(filter.state, 'state = ?', filter.state);
  if (filter.decision !== null) askState(STATE_OF[filter.decision] ?? null, 'decision = ?', filter.decision);
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
  const rows = database
    .prepare(
      `SELECT n, created, call, terms, life FROM effects ${index} WHERE ${where.join(' AND ')} ORDER BY ${order} LIMIT ?`,
    )
    .all(...values, filter.limit + 1);
  const shown = rows.slice(0, filter.limit);
  const last = shown.at(-1);
  return {
    items: shown.map((row) => decodeEffect(row)),
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
