import type { ReadingTurns } from '../effects/run/reading-turns.ts';
import type { ReadOperation } from '../stores/open-rows.ts';
import type { ListQuery, Row, RowStore } from '../stores/port.ts';
import type { Repository } from './kind.ts';

/** Most characters of rows in one slice of a list. */
const SLICE_CHARACTERS = 1024 * 1024;

/** Entries of one slice. */
const SLICE = 200;

/** The same for what people read. */
export const READ_CHARACTERS = 256 * 1024;
export const READ_SLICE = 50;

/** Rows that one read looks up by their ids. */
const NAMES_AT_ONCE = 20;

export interface Entry {
  readonly at: number;
  readonly id: string;
  readonly row: Row;
}

export type Asked = Pick<ListQuery, 'workspace' | 'list' | 'kind'> & Partial<ListQuery>;

/** A list, slice by slice, so that a long list blocks neither the store nor this thread. */
export async function* slices(store: Pick<RowStore, 'list'>, asked: Asked): AsyncGenerator<readonly Entry[]> {
  let after = asked.after ?? null;
  for (;;) {
    const slice = await store.list({
      order: 'up',
      from: null,
      to: null,
      limit: SLICE,
      characters: SLICE_CHARACTERS,
      ...asked,
      after,
    });
    yield slice.entries;
    const last = slice.entries.at(-1);
    if (!slice.more || last === undefined) return;
    after = { at: last.at, id: last.id };
  }
}

export async function* entries(store: Pick<RowStore, 'list'>, asked: Asked): AsyncGenerator<Entry> {
  for await (const slice of slices(store, asked)) yield* slice;
}

/** What people read: a store, and the turns in which it is read for them. */
export interface Readable<Store = Pick<RowStore, ReadOperation>> {
  readonly store: Store;
  readonly turns: ReadingTurns;
}

/** Like {@link slices}, for people: in turns, and each slice so small that the store answers within a few ms. */
export function slicesInTurns({ store, turns }: Readable, asked: Asked): AsyncGenerator<readonly Entry[]> {
  const limit = Math.min(asked.limit ?? READ_SLICE, READ_SLICE);
  const inTurn = { list: (query: ListQuery) => turns.run(() => store.list(query)) };
  return slices(inTurn, { characters: READ_CHARACTERS, ...asked, limit });
}

/** All of a list, for people. */
export async function shownOf<Shown>(
  from: Readable,
  asked: Asked,
  show: (entry: Entry) => Shown,
): Promise<readonly Shown[]> {
  const shown: Shown[] = [];
  for await (const slice of slicesInTurns(from, asked)) shown.push(...(await from.turns.map(slice, show)));
  return shown;
}

export async function firstOf(store: Pick<RowStore, 'list'>, asked: Asked, limit: number): Promise<readonly Entry[]> {
  const found: Entry[] = [];
  if (limit <= 0) return found;
  for await (const entry of entries(store, { ...asked, limit: Math.min(limit, SLICE) })) {
    found.push(entry);
    if (found.length === limit) break;
  }
  return found;
}

export async function recordsOf<Stored>(
  store: Pick<RowStore, 'list'>,
  rows: Repository<Stored>,
  workspace: string,
  list: string,
): Promise<readonly Stored[]> {
  const found: Stored[] = [];
  for await (const { row } of entries(store, { workspace, list, kind: rows.kind })) found.push(rows.of(row));
  return found;
}

/** What is made of rows, in the order of their ids; `null`: there is none. An answer may be shorter than what was asked. */
export async function rowsByName<Made>(
  { store, turns }: Readable<Pick<RowStore, 'rows'>>,
  workspace: string,
  kind: string,
  ids: readonly string[],
  make: (row: Row) => Made,
): Promise<readonly (Made | null)[]> {
  const made: (Made | null)[] = [];
  while (made.length < ids.length) {
    const names = ids.slice(made.length, made.length + NAMES_AT_ONCE).map((id) => ({ kind, id }));
    const rows = await turns.run(() => store.rows(workspace, names));
    made.push(...(await turns.map(rows, (row) => (row === null ? null : make(row)))));
  }
  return made;
}
