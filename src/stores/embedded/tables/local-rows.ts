import type { EventDraft, Counter, Listed, ListQuery, LocalRows, Place, SumChange, SumName } from '../../port.ts';
import { ABSENT } from '../../port.ts';
import type { WorkspaceNames } from './names.ts';
import { openReader } from './reader.ts';
import type { Entry } from './rows-table.ts';
import type { Tables } from './tables.ts';

const NOT_WHOLE = 'a store keeps whole numbers only';

/** One workspace within a transaction: what is read and written here is what the tables have. */
export class LocalTables implements LocalRows {
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
    const entry = rows.find(names.kind(workspace, kind), id);
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
