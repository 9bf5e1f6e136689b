import type { KeyRecord } from '../../effects/controls.ts';
import type { SqlDatabase } from './driver.ts';
import { columnText, decode } from './document.ts';

export interface KeysTable {
  byHandle(handle: string): KeyRecord | null;
  get(id: string): KeyRecord | null;
  /** Keys of a user, or all of them, oldest first. */
  list(user: string | null): readonly KeyRecord[];
  put(key: KeyRecord): void;
}

/** Keys, without their secrets. */
export function openKeysTable(database: SqlDatabase): KeysTable {
  const byHandle = database.prepare('SELECT doc FROM keys WHERE handle = ?');
  const byId = database.prepare('SELECT doc FROM keys WHERE id = ?');
  const listAll = database.prepare('SELECT doc FROM keys ORDER BY rowid');
  const listOf = database.prepare('SELECT doc FROM keys WHERE owner = ? ORDER BY rowid');
  const put = database.prepare(
    `INSERT INTO keys (id, handle, owner, doc) VALUES (?, ?, ?, ?)
     ON CONFLICT (id) DO UPDATE SET handle = excluded.handle, owner = excluded.owner, doc = excluded.doc`,
  );
  const one = (row: ReturnType<typeof byId.get>): KeyRecord | null =>
    row === undefined ? null : decode<KeyRecord>(row['doc']);
  return {
    byHandle: (handle) => one(byHandle.get(columnText(handle))),
    get: (id) => one(byId.get(columnText(id))),
    list: (user) =>
      (user === null ? listAll.all() : listOf.all(columnText(user))).map((row) => decode<KeyRecord>(row['doc'])),
    put(key) {
      put.run(
        columnText(key.id),
        columnText(key.handle),
        key.user === null ? null : columnText(key.user),
        JSON.stringify(key),
      );
    },
  };
}
