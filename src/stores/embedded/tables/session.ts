import { randomBytes } from 'node:crypto';
import { inTransaction, type SqlDatabase } from '../driver.ts';
import { ownText } from './columns.ts';
import {
  type Answer,
  type Change,
  type Counter,
  type Found,
  type LocalRows,
  type Place,
  type Put,
  type Row,
  type Seen,
  type SumListed,
  type SumName,
  type Want,
  type Watched,
  type EventDraft,
  type Listed,
  type ListQuery,
  type SumChange,
  ABSENT,
} from '../../port.ts';
import { openCountersTable } from './counters-table.ts';
import { openLedgerTable } from './ledger-table.ts';
import { openMetaTable } from './meta-table.ts';
import { openNames, type WorkspaceNames } from './names.ts';
import { openReader } from './reader.ts';
import { type Entry, openPlacesTable, openRowsTable } from './rows-table.ts';

/** The tables of a store, with what writes to several of them. */
interface Tables {
  readonly database: SqlDatabase;
  readonly names: ReturnType<typeof openNames>;
  readonly rows: ReturnType<typeof openRowsTable>;
  readonly places: ReturnType<typeof openPlacesTable>;
  readonly counters: ReturnType<typeof openCountersTable>;
  readonly ledger: ReturnType<typeof openLedgerTable>;
  readonly meta: ReturnType<typeof openMetaTable>;
  write(workspace: WorkspaceNames, entry: Entry, put: Omit<Put, 'version'>, version: string): void;
  /** Says that the transaction writes something. */
  wrote(): void;
}

export type RowSession = ReturnType<typeof openRowSession>;

/** Pages that are given back at once, and how long that may go on, ms: transactions wait for it. */
const AT_ONCE = 8;
const MOST_AT_ONCE = 64;
const GIVING_BACK_MS = 5;

/** Empty pages that a file keeps for what comes: so many, and this part of all of them. */
const KEPT_PAGES = 128;
const KEPT_SHARE = 16;

/**
 * One open database, and the operations on it, within a transaction or a look.
 * @param watched kinds whose changes are told; may grow
 */
export function openRowSession(database: SqlDatabase, watched: ReadonlySet<string>) {
  const names = openNames(database, true);
  const rows = openRowsTable(database);
  const places = openPlacesTable(database);
  const counters = openCountersTable(database);
  const ledger = openLedgerTable(database);
  const meta = openMetaTable(database);
  const freePages = database.prepare('PRAGMA freelist_count');
  const allPages = database.prepare('PRAGMA page_count');
  const giveBack = database.prepare(`PRAGMA incremental_vacuum(${AT_ONCE})`);
  let changed: Watched[] = [];
  let writes = 0;
  let now = 0;
  const boot = randomBytes(9).toString('base64url');
  let versions = 0;
  const tables: Tables = {
    database,
    names,
    rows,
    places,
    counters,
    ledger,
    meta,
    write: writeRow,
    wrote() {
      writes += 1;
    },
  };

  function entryOf(workspace: string, kind: string, id: string): Entry {
    const place = names.findWorkspace(workspace);
    return rows.find(names.findKind(place, kind), id);
  }

  /** Adds a row to the result, and the row that it names. */
  function show(found: Found[], workspace: string, { kind, id, follow }: Want, entry: Entry): void {
    const row = rows.row(entry);
    found.push({ kind, id, row });
    if (follow === undefined || row === null) return;
    const named: Row | null = rows.row(entryOf(workspace, follow, row.text));
    if (named !== null) found.push({ kind: follow, id: row.text, row: named });
  }

  /** Finds a fault of the program before anything is decided, so that only this change fails. */
  function check({ puts, sums }: Change): void {
    for (const { enter } of puts) for (const { at } of enter) whole(at);
    for (const { hold, spend, span } of sums) {
      whole(hold);
      whole(spend);
      whole(span.kind === 'until' ? span.end : span.ms);
    }
  }

  function allows(change: Change, entries: readonly Entry[], guarded: readonly Entry[]): boolean {
    const { epoch, from, until, guards, puts, sums, resets } = change;
    if (epoch !== meta.get().epoch || now < from || now >= until) return false;
    for (const [index, { version }] of guards.entries()) if (guarded[index]?.version !== version) return false;
    for (const [index, { version }] of puts.entries()) if (entries[index]?.version !== version) return false;
    return sums.length === 0 || counters.allow(names.workspace(change.workspace).n, sums, resets, now);
  }

  function refuse(change: Change, entries: readonly Entry[], guarded: readonly Entry[]): Answer {
    const { workspace, guards, puts } = change;
    const found: Found[] = [];
    for (const [index, guard] of guards.entries()) {
      const entry = guarded[index];
      if (entry !== undefined && entry.version !== guard.version) show(found, workspace, guard, entry);
    }
    for (const [index, put] of puts.entries()) {
      const entry = entries[index];
      if (entry !== undefined && entry.version !== put.version) show(found, workspace, put, entry);
    }
    return { kind: 'moved', now, epoch: meta.get().epoch, rows: found, counters: countersOf(workspace, change.sums) };
  }

  function countersOf(workspace: string, sums: readonly SumName[]): readonly Counter[] {
    if (sums.length === 0) return [];
    const { n } = names.findWorkspace(workspace);
    return sums.map((sum) => counters.read(n, sum, now));
  }

  function writeRow(
    workspace: WorkspaceNames,
    entry: Entry,
    { kind, id, text, enter, leave }: Omit<Put, 'version'>,
    version: string,
  ): void {
    writes += 1;
    // The row was already written in this transaction, and may now leave a list that it has just entered.
    if (entry.isChanged) places.flush();
    rows.write(entry, id, version, text);
    for (const place of leave)
      if (!isAmong(enter, place)) places.leave(names.list(workspace, place.list), place.at, id);
    for (const place of enter)
      if (!isAmong(leave, place)) places.enter(names.list(workspace, place.list), place.at, id);
    if (watched.has(kind)) changed.push({ workspace: workspace.name, kind, id });
  }

  function write(change: Change, entries: readonly Entry[]): void {
    const { id, puts, sums, resets, events } = change;
    if (puts.length === 0 && sums.length === 0 && resets.length === 0 && events.length === 0) return;
    writes += 1;
    const workspace = names.workspace(change.workspace);
    for (const [index, put] of puts.entries()) {
      const entry = entries[index];
      if (entry === undefined) continue;
      if (put.text !== null) rows.shorten(entry, put.text.length);
      writeRow(workspace, entry, put, ownText(id));
    }
    for (const group of resets) counters.reset(workspace.n, group);
    for (const sum of sums) counters.change(workspace.n, sum, now);
    if (events.length > 0) ledger.append(workspace.n, events);
  }

  function commit(change: Change): Answer {
    check(change);
    const { workspace, guards, puts } = change;
    const place = names.workspace(workspace);
    const guarded = guards.map(({ kind, id }) => rows.find(names.findKind(place, kind), id));
    const entries = puts.map(({ kind, id }) => rows.find(names.kind(place, kind), id));
    if (!allows(change, entries, guarded)) return refuse(change, entries, guarded);
    now = Math.max(now, change.at);
    const seq = ledger.nextSeq(place.n);
    write(change, entries);
    return { kind: 'done', now, epoch: meta.get().epoch, seq, counters: countersOf(workspace, change.sums) };
  }

  function read(workspace: string, wants: readonly Want[], sums: readonly SumName[]): Seen {
    const found: Found[] = [];
    for (const want of wants) show(found, workspace, want, entryOf(workspace, want.kind, want.id));
    return { now, epoch: meta.get().epoch, rows: found, counters: countersOf(workspace, sums) };
  }

  /** Makes the file smaller where much of it is empty. @returns pages; 0: also of a file that keeps all it has */
  function giveBackPages(): number {
    const empty = Number(freePages.get()?.['freelist_count']);
    if (empty <= KEPT_PAGES + Number(allPages.get()?.['page_count']) / KEPT_SHARE) return 0;
    const until = performance.now() + GIVING_BACK_MS;
    let given = 0;
    do {
      giveBack.all();
      given = empty - Number(freePages.get()?.['freelist_count']);
    } while (given > 0 && given < MOST_AT_ONCE && performance.now() < until);
    return given;
  }

  function flush(): void {
    rows.flush();
    places.flush();
    counters.flush();
    ledger.flush(meta.get().epoch, now);
    meta.tick(now);
  }

  /** Another process wrote: nothing in memory is valid any more. */
  function forget(): void {
    for (const part of [names, rows, places, counters, ledger, meta]) part.forget();
    changed = [];
  }

  /** Runs `work` at a time, within a transaction of the caller. What it collected in memory is then written. */
  function within<T>(begin: () => number, work: () => T): T {
    // The time of a change may be later than the clock.
    now = Math.max(begin(), meta.find()?.clock ?? 0);
    const before = writes;
    const result = work();
    if (writes !== before) flush();
    rows.shrink();
    return result;
  }

  return {
    meta,
    commit,
    read,
    get now() {
      return now;
    },
    in(workspace: string): LocalRows {
      versions += 1;
      return new LocalTables(workspace, now, `${boot}.${versions.toString(36)}`, tables);
    },
    sums: (workspace: string, after: string | null, limit: number): readonly SumListed[] =>
      counters.list(names.findWorkspace(workspace).n, after, limit, now),
    prune(workspace: string, limit: number): number {
      const pruned = counters.prune(names.findWorkspace(workspace).n, limit, now);
      if (giveBackPages() + pruned > 0) writes += 1;
      return pruned;
    },
    within,
    /** The same as a transaction of its own. */
    transact<T>(begin: () => number, work: () => T): T {
      try {
        return inTransaction(database, () => within(begin, work));
      } catch (error) {
        forget();
        throw error;
      }
    },
    /** How many writes were made so far. It shows whether a failed request had already written something. */
    writes: (): number => writes,
    /** What listeners are told once the transaction is durable; a second call returns nothing. */
    takeChanged(): readonly Watched[] {
      const taken = changed;
      if (taken.length > 0) changed = [];
      return taken;
    },
    forget,
  };
}

function isAmong(places: readonly Place[], { list, at }: Place): boolean {
  for (const other of places) if (other.list === list && other.at === at) return true;
  return false;
}

function whole(value: number): void {
  if (!Number.isSafeInteger(value)) throw new TypeError(`${value} is not a whole number that a store can keep`);
}

const NOT_WHOLE = 'a store keeps whole numbers only';

/** One workspace within a transaction: what is read and written here is what the tables have. */
class LocalTables implements LocalRows {
  readonly workspace: string;
  readonly now: number;
  readonly epoch: number;
  readonly #tables: Tables;
  readonly #version: string;
  #names: WorkspaceNames;

  /** @param version of the rows that are written; never used before */
  constructor(workspace: string, now: number, version: string, tables: Tables) {
    this.workspace = workspace;
    this.now = now;
    this.epoch = tables.meta.get().epoch;
    this.#version = version;
    this.#tables = tables;
    this.#names = tables.names.findWorkspace(workspace);
  }

  row(kind: string, id: string): Entry | null {
    const entry = this.#tables.rows.find(this.#tables.names.findKind(this.#names, kind), id);
    entry.readFor = this.#version;
    return entry.version === ABSENT ? null : entry;
  }

  replaced(kind: string, id: string): Entry | null {
    const entry = this.#tables.rows.find(this.#tables.names.findKind(this.#names, kind), id);
    return entry.version === ABSENT || entry.readFor !== this.#version ? null : entry;
  }

  put(kind: string, id: string, text: string | null, places: readonly Place[], before: readonly Place[]): Entry | null {
    for (const { at } of places) if (!Number.isSafeInteger(at)) throw new TypeError(NOT_WHOLE);
    const { names, rows } = this.#tables;
    const workspace = this.#made();
    const entry = rows.find(names.kind(workspace, kind), id, text !== null);
    if (entry.version !== ABSENT && entry.readFor !== this.#version)
      throw new TypeError('a row that was to be new is there already');
    entry.readFor = this.#version;
    this.#tables.write(workspace, entry, { kind, id, text, enter: places, leave: before }, this.#version);
    return text === null ? null : entry;
  }

  counter(name: SumName): Counter {
    return this.#tables.counters.read(this.#names.n, name, this.now);
  }

  counterAsStored(name: SumName): Counter {
    return this.counter(name);
  }

  sum(change: SumChange): void {
    const { hold, spend, span } = change;
    const of = span.kind === 'until' ? span.end : span.ms;
    if (!Number.isSafeInteger(hold) || !Number.isSafeInteger(spend) || !Number.isSafeInteger(of))
      throw new TypeError(NOT_WHOLE);
    this.#tables.wrote();
    this.#tables.counters.change(this.#made().n, change, this.now);
  }

  nextSeq(): number {
    const { n } = this.#names;
    return n === 0 ? 1 : this.#tables.ledger.nextSeq(n);
  }

  events(events: readonly EventDraft[]): void {
    if (events.length === 0) return;
    this.#tables.wrote();
    this.#tables.ledger.append(this.#made().n, events);
  }

  reset(group: string): void {
    this.#tables.wrote();
    this.#tables.counters.reset(this.#made().n, group);
  }

  validUntil(): void {}

  /** Seldom used. Sees what the transaction has written. */
  list(query: Omit<ListQuery, 'workspace'>): Listed {
    this.#tables.rows.flush();
    this.#tables.places.flush();
    return openReader(this.#tables.database).list({ ...query, workspace: this.workspace });
  }

  /** The workspace, which gets a number when something is written for the first time. */
  #made(): WorkspaceNames {
    if (this.#names.n === 0) this.#names = this.#tables.names.workspace(this.workspace);
    return this.#names;
  }
}
