import { decisionOf } from '../../effects/effect-decision.ts';
import type { EffectRecord, Lease, Tombstone } from '../../effects/effect.ts';
import type { Binding, EffectWrite } from '../../effects/plan.ts';
import type { AdmitRequest, EffectFilter, Page } from '../../effects/store.ts';
import { passingMap } from '../passing-map.ts';
import type { SqlDatabase, SqlRow } from './driver.ts';
import { columnText, decode, integer } from './document.ts';
import {
  decodeCall,
  type DecodedEffect,
  decodeEffect,
  encodeCall,
  encodeLife,
  encodeTerms,
  type SaidOutcome,
  sameCall,
} from './effect-document.ts';
import { readPage, TOMBSTONE } from './effects-page.ts';

/** A record and where it stands. */
interface Placed extends DecodedEffect {
  readonly n: number;
}

/** A row that was looked at; without a record it is a tombstone's. */
type Seen = Placed | { readonly n: number; readonly record: null };

/** Texts that came with a request, of what the step is about to write. */
export type ExpectedText =
  | { readonly kind: 'call'; readonly request: AdmitRequest; readonly text: string }
  | { readonly kind: 'outcome'; readonly said: SaidOutcome; readonly text: string };

export interface EffectName {
  readonly workspace: string;
  readonly id: string;
}

export interface EffectsTable {
  binding(workspace: string, key: string): Binding | null;
  effect(workspace: string, id: string): EffectRecord | null;
  tombstone(workspace: string, id: string): Tombstone | null;
  /**
   * @param ledger the ledger row with the events of the step; `null`: it has none
   * @returns whether the row of the effect names that ledger row now
   */
  put(write: EffectWrite, ledger: number | null): boolean;
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
  /** Takes the text of what the next step is about to write, so that it need not be made again. */
  expect(text: ExpectedText | null): void;
  /** Writes what was gathered in memory. */
  flush(): void;
  /** To be called between steps: what was looked up is looked up again. */
  endStep(): void;
  /** Forgets what is cached: the transaction was rolled back, or another process wrote. */
  forget(): void;
}

/** Effects and tombstones. Executing effects are cached: their owner is about to settle them. */
export function openEffectsTable(database: SqlDatabase): EffectsTable {
  // What has become of an effect stands in `lives`; without a row there it executes.
  const columns = 'n, workspace, state, call, terms, coalesce(lives.life, effects.life) AS life, outcome';
  const from = 'FROM effects LEFT JOIN lives USING (n)';
  const byKey = database.prepare(`SELECT ${columns} ${from} WHERE key = ? AND workspace = ?`);
  const byId = database.prepare(`SELECT ${columns} ${from} WHERE id = ?`);
  const insert = database.prepare(
    'INSERT INTO effects (id, workspace, key, tool, agent, created, call, terms, life, ledger) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const setCall = database.prepare('UPDATE effects SET tool = ?, agent = ?, call = ?, terms = ? WHERE n = ?');
  const setAttempt = database.prepare('UPDATE effects SET life = ? WHERE n = ?');
  const setKey = database.prepare('UPDATE effects SET key = ? WHERE n = ?');
  const clearKey = database.prepare('UPDATE effects SET key = NULL WHERE key = ? AND workspace = ?');
  const insertLife = database.prepare(
    'INSERT INTO lives (n, state, decision, at, life, outcome, ledger) VALUES (?, ?, ?, ?, ?, ?, ?)',
  );
  const setLife = database.prepare(
    'UPDATE lives SET state = ?, decision = ?, at = ?, life = ?, outcome = ? WHERE n = ?',
  );
  const keepLedger = database.prepare(
    'INSERT OR IGNORE INTO mentions (effect, ledger) SELECT id, ledger FROM effects WHERE n = ? AND ledger IS NOT NULL',
  );
  const keepLifeLedger = database.prepare(
    'INSERT OR IGNORE INTO mentions (effect, ledger) SELECT id, lives.ledger FROM lives JOIN effects USING (n) WHERE n = ? AND lives.ledger IS NOT NULL',
  );
  const removeLife = database.prepare('DELETE FROM lives WHERE n = ?');
  const start = database.prepare(
    'INSERT OR REPLACE INTO running (n, ends, admitted) SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)',
  );
  const end = database.prepare('DELETE FROM running WHERE n IN (SELECT value FROM json_each(?))');
  const byEnd = database.prepare(
    'SELECT call FROM running JOIN effects USING (n) WHERE ends <= ? ORDER BY ends LIMIT ?',
  );
  const byAdmission = database.prepare('SELECT call FROM running JOIN effects USING (n) WHERE admitted < ? LIMIT ?');
  const byState = database.prepare(
    'SELECT call, terms, lives.life, outcome FROM lives JOIN effects USING (n) WHERE state = ? AND at <= ? ORDER BY at LIMIT ?',
  );
  const placeOf = database.prepare('SELECT n FROM effects WHERE id = ?');
  const empty = database.prepare("UPDATE effects SET call = '', terms = '', life = '' WHERE n = ?");
  const bury = database.prepare('UPDATE lives SET state = ?, life = ?, outcome = NULL WHERE n = ?');
  const expired = database.prepare('SELECT n FROM lives WHERE state = ? AND at < ? ORDER BY at LIMIT ?');
  const removeRow = database.prepare('DELETE FROM effects WHERE n = ?');

  const executing = passingMap<string, Placed>();
  /** Attempts that this transaction began and ended: written at its end, all at once. */
  let started = new Map<number, Lease>();
  let ended = new Set<number>();
  /** What this step has looked at or written, by effect id. */
  const seen = passingMap<string, Seen>();
  /** A key that this step has found bound to nothing. */
  let free: string | null = null;
  let expected: ExpectedText | null = null;

  function read(row: SqlRow | undefined): Binding | null {
    if (row === undefined) return null;
    const n = integer(row['n']);
    if (row['state'] === TOMBSTONE) {
      const tombstone = decode<Tombstone>(row['life']);
      seen.set(tombstone.id, { n, record: null });
      return { kind: 'tombstone', tombstone };
    }
    const decoded = decodeEffect(row);
    seen.set(decoded.record.id, { n, ...decoded });
    return { kind: 'effect', effect: decoded.record };
  }

  function find(workspace: string, id: string): Binding | null {
    const row = byId.get(columnText(id));
    return row === undefined || row['workspace'] !== columnText(workspace) ? null : read(row);
  }

  /** The text of a record's call; the one at hand where it is of this very call. */
  function callOf(record: EffectRecord): string {
    if (expected?.kind !== 'call' || expected.request.effectId !== record.id) return encodeCall(record);
    return sameCall(expected.request, record) ? expected.text : encodeCall(record);
  }

  /** The text of a record's outcome, where it is at hand. */
  function outcomeOf({ life }: EffectRecord): string | null {
    if (expected?.kind !== 'outcome' || (life.state !== 'committed' && life.state !== 'failed')) return null;
    const { evidence, receipt, result } = expected.said;
    if (life.evidence !== evidence || life.result !== result) return null;
    return (life.state === 'committed' ? life.receipt : null) === receipt ? expected.text : null;
  }

  function columnsOfLife(record: EffectRecord, admittedStages: number) {
    const outcome = outcomeOf(record);
    const text = encodeLife(record, admittedStages, outcome !== null);
    return [record.life.state, decisionOf(record), settledAt(record), text, outcome] as const;
  }

  /** Takes a key from whatever it is bound to. */
  function freeKey({ workspace, idempotencyKey }: EffectRecord): void {
    const place = [columnText(idempotencyKey), columnText(workspace)] as const;
    if (free !== place.join('\0')) clearKey.run(...place);
  }

  function add({ record, binding }: EffectWrite, ledger: number | null): number {
    const { life, stages } = record;
    const runs = life.state === 'executing';
    const n = insert.run(
      columnText(record.id),
      columnText(record.workspace),
      binding === 'bind' ? columnText(record.idempotencyKey) : null,
      columnText(record.action.tool),
      columnText(record.actor.agentId),
      record.createdAt,
      callOf(record),
      encodeTerms(record),
      runs ? encodeLife(record, stages.length, false) : '',
      ledger,
    );
    if (!runs) insertLife.run(n, ...columnsOfLife(record, stages.length), null);
    return n;
  }

  /** @returns how many of the stages the text of the terms holds now */
  function change({ record, binding }: EffectWrite, before: Seen, ledger: number | null): number {
    const { n } = before;
    const same = before.record !== null && isSameAttempt(record, before);
    const admittedStages = same ? before.admittedStages : record.stages.length;
    if (!same) {
      const { action, actor } = record;
      setCall.run(columnText(action.tool), columnText(actor.agentId), callOf(record), encodeTerms(record), n);
    }
    if (binding !== 'keep') setKey.run(binding === 'bind' ? columnText(record.idempotencyKey) : null, n);
    const ran = before.record?.life.state === 'executing';
    if (record.life.state === 'executing') {
      setAttempt.run(encodeLife(record, admittedStages, false), n);
      if (!ran) dropLife(n);
    } else if (ran) insertLife.run(n, ...columnsOfLife(record, admittedStages), ledger);
    else setLife.run(...columnsOfLife(record, admittedStages), n);
    return admittedStages;
  }

  function flush(): void {
    if (ended.size > 0) end.run(JSON.stringify([...ended]));
    if (started.size > 0)
      start.run(JSON.stringify(Array.from(started, ([n, { leaseEnd, admittedAt }]) => [n, leaseEnd, admittedAt])));
    ended = new Set();
    started = new Map();
  }

  /** Where its events are stays known. */
  function dropLife(n: number): void {
    keepLifeLedger.run(n);
    removeLife.run(n);
  }

  function removeBoth(n: number): void {
    dropLife(n);
    keepLedger.run(n);
    removeRow.run(n);
  }

  return {
    binding(workspace, key) {
      const place = [columnText(key), columnText(workspace)] as const;
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
    put(write, ledger) {
      const { record } = write;
      const { id, life } = record;
      // A record that the step has not looked at is a new one.
      const there = seen.get(id);
      if (write.binding === 'bind') freeKey(record);
      free = null;
      const ran = there?.record?.life.state === 'executing';
      const placed: Placed =
        there === undefined
          ? { n: add(write, ledger), record, admittedStages: record.stages.length }
          : { n: there.n, record, admittedStages: change(write, there, ledger) };
      const { n } = placed;
      seen.set(id, placed);
      if (life.state === 'executing') {
        executing.set(id, placed);
        started.set(n, life.lease);
      } else if (ran) {
        executing.delete(id);
        started.delete(n);
        ended.add(n);
      }
      return ledger !== null && (there === undefined || (ran && life.state !== 'executing'));
    },
    page(workspace, filter, lostBefore) {
      flush();
      return readPage(database, workspace, filter, lostBefore);
    },
    executing(at, limit) {
      flush();
      return byEnd.all(at, limit).map(nameOf);
    },
    admittedBefore(at, limit) {
      flush();
      return byAdmission.all(at, limit).map(nameOf);
    },
    settledBefore: (state, before, limit) =>
      byState.all(state, before - 1, limit).map((row) => decodeEffect(row).record),
    bury(tombstone) {
      const n = integer(placeOf.get(columnText(tombstone.id))?.['n']);
      empty.run(n);
      bury.run(TOMBSTONE, JSON.stringify(tombstone), n);
    },
    remove(id) {
      const row = placeOf.get(columnText(id));
      if (row !== undefined) removeBoth(integer(row['n']));
    },
    removeTombstones(before, limit) {
      const rows = expired.all(TOMBSTONE, before, limit);
      for (const row of rows) removeBoth(integer(row['n']));
      return rows.length;
    },
    expect(text) {
      expected = text;
    },
    flush,
    endStep() {
      seen.clear();
      free = null;
    },
    forget() {
      executing.clear();
      started = new Map();
      ended = new Set();
      seen.clear();
    },
  };
}

function nameOf(row: SqlRow): EffectName {
  const { workspace, id } = decodeCall(row['call']);
  return { workspace, id };
}

/** Whether a record was asked for and admitted as the one before, so that only what became of it differs. */
function isSameAttempt(record: EffectRecord, { record: before, admittedStages }: Placed): boolean {
  const lastAdmitted = admittedStages - 1;
  return (
    sameCall(record, before) &&
    record.trace === before.trace &&
    record.holds === before.holds &&
    record.stages[lastAdmitted] === before.stages[lastAdmitted]
  );
}

/** When an effect came to what it is; `created` where it waits. */
function settledAt({ life, createdAt }: EffectRecord): number {
  switch (life.state) {
    case 'pending_approval':
    case 'executing':
      return createdAt;
    case 'committed':
    case 'failed':
    case 'unknown':
    case 'rejected':
    case 'denied':
      return life.at;
  }
}
