import type { EffectRecord, Tombstone } from '../effects/model/effect.ts';
import type { LedgerActor } from '../effects/model/ledger.ts';
import { derivedKeyOf } from '../effects/steps/generations.ts';
import { holdsToWire } from '../effects/steps/give-back.ts';
import { ArchiveUnavailable, type StoreHealth, StoreUnavailable, type SweepReport } from '../effects/store.ts';
import type { ArchivedRow, ArchiveMark, Segment, SegmentStore } from '../stores/open-rows.ts';
import type { Listed, ListQuery, Row, RowStore } from '../stores/port.ts';
import { approvalsOf, replaceEffect, tombstoneOf } from './aged.ts';
import { approvalRows } from './approval-rows.ts';
import { budgetSum } from './counters.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { archivedOf, effectRows, keyRows, type StoredEffect, tombstoneIn } from './effect-rows.ts';
import { jsonKind, repository } from './kind.ts';
import { readRecord, type StepRunner } from './runner.ts';
import { appendEvents } from './view.ts';

const GATEWAY: LedgerActor = { type: 'gateway', id: 'archive' };

/** Where the chain of a workspace's segments has got to. */
const headRows = repository(jsonKind<ArchiveMark>('archive', () => []));
const HEAD = 'head';

const MOST_APPROVALS = 100;

/** Segments that are remembered: who reads a list reads the same one again and again. */
const MOST_REMEMBERED = 8;

/** Segments that one look at a list opens: each is read and parsed whole. */
const MOST_OPENED = 4;

/** A segment that takes longer holds up what else is swept, ms. Then none is made for nine times as long. */
const SLOW_MS = 5_000;
const RESTS = 9;

/** What ages out of the store goes here, and is read back from here. */
export type Archive = ReturnType<typeof createArchive>;

/**
 * @param kept `null`: nothing is archived
 * @param elapsed ms of a clock that never goes back
 */
export function createArchive(
  store: RowStore,
  runner: StepRunner,
  kept: SegmentStore | null,
  elapsed: () => number = () => performance.now(),
) {
  const segments = new Map<string, Promise<Segment>>();
  /** Why the store must not be used, by workspace. */
  const problems = new Map<string, NonNullable<StoreHealth['problem']>>();
  /** What keeps records from leaving, by workspace. */
  const failures = new Map<string, string>();
  let last: { readonly segment: number; readonly at: number } | null = null;
  let restsUntil = Number.NEGATIVE_INFINITY;

  /**
   * Holds the store of a workspace against its archive, and takes in the segments that the store does not name: whoever
   * wrote them ended before the store did.
   * @throws StoreUnavailable where the store is older than its archive
   */
  async function catchUp(workspace: string): Promise<void> {
    if (kept === null) return;
    const found = await compare(kept, workspace).catch((error: unknown) => {
      if (!(error instanceof StoreUnavailable)) throw error;
      return { code: 'store_unavailable', message: error.message } as const;
    });
    if (found === null) {
      problems.delete(workspace);
      return;
    }
    problems.set(workspace, found);
    throw new StoreUnavailable(found.message);
  }

  /** @returns why the store must not be used */
  async function compare(of: SegmentStore, workspace: string): Promise<StoreHealth['problem']> {
    let head = await readRecord(runner, headRows, workspace, HEAD);
    const mark = await of.mark(workspace);
    const reached = head?.n ?? 0;
    if (mark !== null && (mark.n > reached || (mark.n === reached && mark.sha256 !== head?.sha256)))
      return {
        code: 'store_rolled_back',
        message: `The store is older than its archive, which has got to segment ${mark.n} of the workspace ${workspace}, and the store to ${reached}: acknowledged actions may be missing from it, and repeating them could run them twice. Restore the newest copy of store.db; or, to go on with this one and take in what the archive has, delete ${of.markAt(workspace)}.`,
      };
    // A folder without what the store names is not the archive: it is not mounted, or another one is.
    if (head !== null && mark === null) await read(of, workspace, head.n);
    for (;;) {
      const n = (head?.n ?? 0) + 1;
      const next = await of.read(workspace, n);
      if (next === null) {
        if (mark === null && (await of.hasAfter(workspace, n))) throw missing(of, workspace, n);
        break;
      }
      if (next.before !== (head?.sha256 ?? null))
        throw new StoreUnavailable(
          `Segment ${next.n} of the workspace ${workspace} in the archive does not follow the one that the store names. Restore the newest copy of store.db, or bring back the archive that belongs to it.`,
        );
      await takeIn(workspace, next);
      head = next;
    }
    if (head !== null && head.n !== mark?.n) await of.setMark(workspace, head);
    return null;
  }

  /**
   * Writes a segment; then one change of the store names it and leaves a tombstone of each effect.
   * @returns `false` where it cannot be done now: the effects stay in the store
   */
  async function move(workspace: string, rows: readonly ArchivedRow[]): Promise<boolean> {
    // Where the last round failed, the mark may be behind although nothing has to leave any more.
    if (kept === null || (rows.length === 0 && !failures.has(workspace))) return true;
    const begun = elapsed();
    if (begun < restsUntil) return false;
    try {
      const before = await readRecord(runner, headRows, workspace, HEAD);
      const found = await compare(kept, workspace);
      if (found !== null) throw new StoreUnavailable(found.message);
      const head = await readRecord(runner, headRows, workspace, HEAD);
      // What was written by a request whose answer was lost may hold these rows already: they are looked for again.
      const isTakenIn = head?.n !== before?.n;
      if (!isTakenIn && rows.length > 0) await moveOn(kept, workspace, head, rows);
      failures.delete(workspace);
      return !isTakenIn;
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      failures.set(workspace, error.message);
      return false;
    } finally {
      const took = elapsed() - begun;
      if (took > SLOW_MS) restsUntil = begun + took * (1 + RESTS);
    }
  }

  async function moveOn(
    to: SegmentStore,
    workspace: string,
    head: ArchiveMark | null,
    rows: readonly ArchivedRow[],
  ): Promise<void> {
    const before = head?.sha256 ?? null;
    const written = await to.write(workspace, (head?.n ?? 0) + 1, { before, rows });
    await takeIn(workspace, { ...written, before, rows });
    last = { segment: written.n, at: store.now() };
    await to.setMark(workspace, written);
  }

  /** Names a segment in the store and leaves tombstones in place of its records, in one change. */
  async function takeIn(workspace: string, { n, sha256, before, rows }: Segment): Promise<void> {
    const records = rows.map(recordOf);
    // At once: each alone would wait for a sync of the disk.
    const reading = rows.map(async ({ id }) => [id, await approvalsOf(store, workspace, id, MOST_APPROVALS)] as const);
    const approvals = new Map(await Promise.all(reading));
    // The step finds all of them remembered, and asks for none alone.
    await runner.read(workspace, [
      ...rows.map(({ id }) => ({ kind: effectRows.kind, id })),
      ...[...approvals.values()].flat().map((id) => ({ kind: approvalRows.kind, id })),
    ]);
    await runner.run(workspace, (draft) => {
      if ((headRows.get(draft, HEAD)?.n ?? 0) >= n) return;
      const taken = records.filter((record) => replaced(draft, record, n, approvals.get(record.id) ?? []));
      headRows.put(draft, HEAD, { n, sha256 });
      appendEvents(draft, [
        {
          kind: 'archive.segment',
          effectId: null,
          actor: GATEWAY,
          data: { segment: n, sha256, before, effects: taken.length },
        },
      ]);
    });
  }

  /** The segment of a row that the store names. */
  async function segmentOf(workspace: string, n: number): Promise<Segment> {
    if (kept === null)
      throw new ArchiveUnavailable(
        `The record is in segment ${n} of the archive of the workspace ${workspace}, and store.archive names no place any more: name the one where the archive is.`,
      );
    const name = `${n} ${workspace}`;
    const reading = segments.get(name) ?? read(kept, workspace, n);
    segments.delete(name);
    segments.set(name, reading);
    const [oldest] = segments.keys();
    if (segments.size > MOST_REMEMBERED && oldest !== undefined) segments.delete(oldest);
    try {
      return await reading;
    } catch (error) {
      if (segments.get(name) === reading) segments.delete(name);
      throw error;
    }
  }

  async function rowInArchive(tombstone: Tombstone): Promise<ArchivedRow | null> {
    if (tombstone.archived === undefined) return null;
    const { rows } = await segmentOf(tombstone.workspace, tombstone.archived.segment);
    const row = rows.find(({ id }) => id === tombstone.id);
    if (row !== undefined) return row;
    throw new ArchiveUnavailable(`The archive has no record of ${tombstone.id}, which the store says is in it.`);
  }

  async function recalledRow(row: Row, tombstone: Tombstone | null): Promise<Row> {
    const found = tombstone === null ? null : await rowInArchive(tombstone);
    return found === null ? row : { version: row.version, text: found.text };
  }

  async function listed(query: ListQuery): Promise<Listed> {
    const found = await store.list(query);
    if (query.kind !== effectRows.kind) return found;
    const archived = await store.list({ ...query, list: archivedOf(query.list) });
    const merged = merge(query, found, archived);
    const entries: Listed['entries'][number][] = [];
    const opened = new Set<number>();
    const seen = new Set<string>();
    for (const entry of merged.entries) {
      // An effect that went into the archive between the two looks is in both.
      if (seen.has(entry.id)) continue;
      seen.add(entry.id);
      const tombstone = tombstoneIn(entry.row.text);
      if (tombstone?.archived !== undefined) opened.add(tombstone.archived.segment);
      if (opened.size > MOST_OPENED) return { entries, more: true };
      entries.push({ ...entry, row: await recalledRow(entry.row, tombstone) });
    }
    return { entries, more: merged.more };
  }

  return {
    catchUp,
    move,
    /** The same effect with its record, where that is in the archive. */
    async recalled(stored: StoredEffect): Promise<StoredEffect> {
      const row = stored.kind === 'tombstone' ? await rowInArchive(stored.tombstone) : null;
      return row === null ? stored : { kind: 'effect', effect: recordOf(row) };
    },
    /** The store for people: rows and lists of effects have what is in the archive as if it had never left. */
    whole:
      kept === null
        ? store
        : ({
            ...store,
            list: listed,
            async rows(workspace, names) {
              const rows: (Row | null)[] = [];
              for (const [index, row] of (await store.rows(workspace, names)).entries()) {
                const isEffect = row !== null && names[index]?.kind === effectRows.kind;
                rows.push(isEffect ? await recalledRow(row, tombstoneIn(row.text)) : row);
              }
              return rows;
            },
          } satisfies RowStore),
    /** What keeps the store from being used; `null`: nothing. */
    problems,
    /** What happened last; `null`: nothing is archived. */
    state: (): SweepReport['archive'] => (kept === null ? null : { failure: [...failures.values()][0] ?? null, last }),
  };
}

async function read(kept: SegmentStore, workspace: string, n: number): Promise<Segment> {
  const segment = await kept.read(workspace, n);
  if (segment !== null) return segment;
  throw missing(kept, workspace, n);
}

function missing(kept: SegmentStore, workspace: string, n: number): ArchiveUnavailable {
  return new ArchiveUnavailable(
    `Segment ${n} of the workspace ${workspace} is not in the archive: it was expected at ${kept.at(workspace, n)}. Put it back there from a copy, or bring back the archive (store.archive).`,
  );
}

/** Two slices of lists that begin at the same place, as one. */
function merge({ order, limit }: ListQuery, one: Listed, other: Listed): Listed {
  const all = [...one.entries, ...other.entries].toSorted((a, b) => {
    const sign = order === 'up' ? 1 : -1;
    return sign * (a.at - b.at || (a.id < b.id ? -1 : 1));
  });
  // Behind the end of a slice that is cut short, what follows of it may come before what the other has.
  const ends = [one, other].flatMap(({ more, entries: [...slice] }) => {
    const last = slice.at(-1);
    return more && last !== undefined ? [all.indexOf(last) + 1] : [];
  });
  const entries = all.slice(0, Math.min(limit, ...ends));
  return { entries, more: one.more || other.more || entries.length < all.length };
}

function recordOf({ text }: ArchivedRow): EffectRecord {
  const stored = effectRows.of({ version: '', text });
  if (stored.kind === 'effect') return stored.effect;
  throw new TypeError('the archive has records of effects, and a tombstone is none');
}

/**
 * Leaves a tombstone of an effect whose record is in a segment.
 * @returns `false` where what the store has is not what was archived, or already is a tombstone: it stays as it is
 */
function replaced(draft: Draft, record: EffectRecord, segment: number, approvals: readonly string[]): boolean {
  const tombstone = tombstoneOf(record, segment);
  const stored = effectRows.get(draft, record.id, MOSTLY_ABSENT);
  if (tombstone === null) return false;
  // It may have been retried, and ended again, between two segments: the later one says what became of it.
  if (stored?.kind === 'tombstone' && (stored.tombstone.archived?.segment ?? segment) >= segment) return false;
  if (stored?.kind === 'effect' && !isLater(record, stored.effect)) return false;
  if (stored?.kind !== 'effect') bindKeys(draft, record);
  else if (stored.effect.life.state === 'pending_approval') voidHolds(draft, stored.effect);
  replaceEffect(draft, record.id, { kind: 'tombstone', tombstone }, approvals);
  return true;
}

/** The store is older than the archive, and has to know its keys. Of effects under one key the latest has it. */
function bindKeys(draft: Draft, { id, idempotencyKey, createdAt }: EffectRecord): void {
  for (const key of [idempotencyKey, derivedKeyOf(idempotencyKey)]) {
    if (key === null) continue;
    const bound = keyRows.get(draft, key, MOSTLY_ABSENT);
    const stored = bound === null ? null : effectRows.get(draft, bound);
    if (stored === null || madeAt(stored) <= createdAt) keyRows.put(draft, key, id);
  }
}

function madeAt(stored: StoredEffect): number {
  return stored.kind === 'effect'
    ? stored.effect.createdAt
    : (stored.tombstone.archived?.createdAt ?? stored.tombstone.at);
}

/**
 * Whether a settled record of the archive stands in place of what the store has: the same, or from before. An outcome
 * that the store does not know yet is settled there, and is archived again then.
 */
function isLater(archived: EffectRecord, { life, attempt }: EffectRecord): boolean {
  switch (life.state) {
    case 'committed':
    case 'failed':
    case 'rejected':
      return archived.attempt >= attempt && 'at' in archived.life && archived.life.at >= life.at;
    case 'pending_approval':
      return archived.attempt >= attempt;
    case 'executing':
    case 'unknown':
    case 'denied':
      return false;
  }
}

function voidHolds(draft: Draft, { id, holds, holdState }: EffectRecord): void {
  if (holdState !== 'held') return;
  for (const hold of holds)
    draft.sum({ ...budgetSum(hold), hold: -hold.amount, spend: 0, limit: null, most: null, text: null });
  appendEvents(draft, [{ kind: 'budget.voided', effectId: id, actor: GATEWAY, data: { holds: holdsToWire(holds) } }]);
}
