import type { Page } from '../effects/model/page.ts';
import type { Row } from '../stores/port.ts';
import { type Asked, type Readable, slicesInTurns } from './lists.ts';

/**
 * Entries that one page looks at. A filter without a list of its own is searched piece by piece, and the cursor says
 * how far the search came.
 */
const MAX_SCANNED = 2000;

/**
 * A page of a list, newest first. It may have fewer items than asked for even if others follow.
 * @param most items at most, and characters of their rows, except for the first
 * @param show what the page shows for a row; `null`: nothing
 * @param asOfNow called for each item that a row shows, before it is counted
 */
export async function pageOf<Item>(
  from: Readable,
  asked: Asked,
  cursor: string | null,
  most: { readonly items: number; readonly characters: number },
  show: (row: Row) => Item | null,
  asOfNow: (item: Item) => Item | null | Promise<Item | null> = (item) => item,
): Promise<Page<Item>> {
  const items: Item[] = [];
  let scanned = 0;
  let characters = 0;
  let last: string | null = null;
  for await (const entries of slicesInTurns(from, { ...asked, order: 'down', after: parseCursor(cursor) })) {
    const shown = await from.turns.map(entries, ({ row }) => show(row));
    for (const [index, { at, id, row }] of entries.entries()) {
      const listed = shown[index] ?? null;
      const item = listed === null ? null : await asOfNow(listed);
      if (item !== null) characters += row.text.length;
      const isFull = items.length >= most.items || (items.length > 0 && characters > most.characters);
      if ((item !== null && isFull) || scanned >= MAX_SCANNED) return { items, next: last };
      if (item !== null) items.push(item);
      scanned += 1;
      last = `${at.toString(36)}.${id}`;
    }
  }
  return { items, next: null };
}

/** A cursor that this store did not make starts at the beginning. */
function parseCursor(cursor: string | null): { readonly at: number; readonly id: string } | null {
  const match = /^([0-9a-z]{1,11})\.([0-9a-z_]{1,64})$/.exec(cursor ?? '');
  return match === null ? null : { at: Number.parseInt(match[1] ?? '', 36), id: match[2] ?? '' };
}
