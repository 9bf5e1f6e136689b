import type { ListQuery, Row, RowStore } from '../stores/port.ts';
import type { Stock } from './kind.ts';

/** Most characters of rows in one slice of a list. */
const SLICE_CHARACTERS = 1024 * 1024;

/** Entries of one slice. */
const SLICE = 200;

export interface Entry {
  readonly at: number;
  readonly id: string;
  readonly row: Row;
}

export type Asked = Pick<ListQuery, 'workspace' | 'list' | 'kind'> & Partial<ListQuery>;

/** A list, slice by slice, so that a long list blocks neither the store nor this thread. */
export async function* entries(store: RowStore, asked: Asked): AsyncGenerator<Entry> {
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
    yield* slice.entries;
    const last = slice.entries.at(-1);
    if (!slice.more || last === undefined) return;
    after = { at: last.at, id: last.id };
  }
}

/** The first entries of a list. */
export async function firstOf(store: RowStore, asked: Asked, limit: number): Promise<readonly Entry[]> {
  const found: Entry[] = [];
  if (limit <= 0) return found;
  for await (const entry of entries(store, { ...asked, limit: Math.min(limit, SLICE) })) {
    found.push(entry);
    if (found.length === limit) break;
  }
  return found;
}

/** All records of a list. */
export async function recordsOf<Stored>(
  store: RowStore,
  rows: Stock<Stored>,
  workspace: string,
  list: string,
): Promise<readonly Stored[]> {
  const found: Stored[] = [];
  for await (const { row } of entries(store, { workspace, list, kind: rows.kind })) found.push(rows.of(row));
  return found;
}
