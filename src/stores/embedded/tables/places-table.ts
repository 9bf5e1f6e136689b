import type { SqlDatabase } from '../driver.ts';
import { columnText } from './columns.ts';
import { bulk } from './bulk.ts';

/**
 * Places of rows in lists. Only people's reads use them, so they are collected and written at the end of the
 * transaction.
 */
export function openPlacesTable(database: SqlDatabase) {
  const insert = bulk(database, 'INSERT INTO places (list, at, id) VALUES', 3, ' ON CONFLICT DO NOTHING');
  const remove = bulk(database, 'DELETE FROM places WHERE (list, at, id) IN (VALUES', 3, ')');
  return {
    enter(list: number, at: number, id: string): void {
      insert.add(list, at, columnText(id));
    },
    leave(list: number, at: number, id: string): void {
      remove.add(list, at, columnText(id));
    },
    /** Writes what was collected: first what leaves lists, then what enters them. */
    flush(): void {
      remove.flush();
      insert.flush();
    },
    forget(): void {
      insert.forget();
      remove.forget();
    },
  };
}
