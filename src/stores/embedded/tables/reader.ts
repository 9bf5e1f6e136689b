import type { LedgerEntry, LedgerQuery, Listed, ListQuery, Row, RowName } from '../../port.ts';
import type { SqlDatabase } from '../driver.ts';
import { columnText, integer, plainText, text } from './columns.ts';
import { openLedgerReader } from './ledger-table.ts';
import { openNames } from './names.ts';

/** The most that one look reads, so that others wait only for a moment: entries and characters. */
const MOST_ENTRIES = 200;
const MOST_CHARACTERS = 1_000_000;

/** The most events of one look. */
const MOST_EVENTS = 1_000;

export interface RowsQuery {
  readonly workspace: string;
  readonly names: readonly RowName[];
}

/** Rows, lists and the ledger for people's reads, on another connection than the one that writes. */
export type Reader = ReturnType<typeof openReader>;

/** @param database a connection that cannot write */
export function openReader(database: SqlDatabase) {
  const names = openNames(database, false);
  const ledger = openLedgerReader(database);
  const statements = (condition: string, direction: string) => {
    const select = `SELECT places.at AS at, places.id AS id, rows.version AS version, rows.text AS text
      FROM places JOIN rows ON rows.kind = ?1 AND rows.id = places.id
      WHERE places.list = ?2 AND places.at >= ?3 AND places.at <= ?4`;
    const order = `ORDER BY places.at ${direction}, places.id ${direction} LIMIT`;
    return {
      some: database.prepare(`${select} ${order} ?5`),
      beyond: database.prepare(`${select} AND (places.at, places.id) ${condition} (?5, ?6) ${order} ?7`),
    };
  };
  const one = database.prepare('SELECT version, text FROM rows WHERE kind = ? AND id = ?');
  const up = statements('>', 'ASC');
  const down = statements('<', 'DESC');

  return {
    rows({ workspace, names: asked }: RowsQuery): readonly (Row | null)[] {
      const place = names.findWorkspace(workspace);
      const found: (Row | null)[] = [];
      let left = MOST_CHARACTERS;
      for (const { kind, id } of asked.slice(0, MOST_ENTRIES)) {
        const row = one.get(names.findKind(place, kind), columnText(id));
        const whole = row === undefined ? '' : plainText(row['text']);
        left -= whole.length;
        if (left < 0 && found.length > 0) break;
        found.push(row === undefined ? null : { version: text(row['version']), text: whole });
      }
      return found;
    },
    list({ workspace, list, kind, order, from, to, after, limit, characters }: ListQuery): Listed {
      const place = names.findWorkspace(workspace);
      const numbers = [names.findKind(place, kind), names.findList(place, list)];
      const isUp = order === 'up';
      const { some, beyond } = isUp ? up : down;
      const most = Math.min(limit, MOST_ENTRIES);
      // Start the search at the place to continue from, not at the start of the list.
      const low = Math.max(from ?? 0, isUp ? (after?.at ?? 0) : 0);
      const high = Math.min(
        to ?? Number.MAX_SAFE_INTEGER,
        isUp ? Number.MAX_SAFE_INTEGER : (after?.at ?? Number.MAX_SAFE_INTEGER),
      );
      const rows =
        after === null
          ? some.all(...numbers, low, high, most + 1)
          : beyond.all(...numbers, low, high, after.at, columnText(after.id), most + 1);
      const entries = [];
      let left = Math.min(characters, MOST_CHARACTERS);
      for (const row of rows.slice(0, most)) {
        const whole = plainText(row['text']);
        left -= whole.length;
        if (left < 0 && entries.length > 0) break;
        const at = integer(row['at']);
        entries.push({ at, id: plainText(row['id']), row: { version: text(row['version']), text: whole } });
      }
      return { entries, more: entries.length < rows.length };
    },
    ledger: ({ workspace, about, order, after, limit }: LedgerQuery): readonly LedgerEntry[] =>
      ledger(names.findWorkspace(workspace).n, { about, order, after, limit: Math.min(limit, MOST_EVENTS) }),
  };
}
