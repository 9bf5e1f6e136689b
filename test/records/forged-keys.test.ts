import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { loadDriver, type SqlDatabase } from '../../src/stores/embedded/driver.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { describeForgedKeys } from './forged-keys.ts';

const openDatabase = await loadDriver();

describeForgedKeys('SQLite, by the driver', async (keySeals) => {
  const path = storeFolder();
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  const store = await openEmbeddedStore({ path, lockWaitMs: 0, retention, keySeals, worker: 'never' });

  async function on<T>(work: (database: SqlDatabase) => T): Promise<T> {
    const database = openDatabase(join(path, 'store.db'));
    try {
      return work(database);
    } finally {
      database.close();
    }
  }

  const KIND = `(SELECT n FROM names WHERE type = 1 AND name = ?)`;
  return {
    store,
    text: (kind, id) =>
      on((database) =>
        String(database.prepare(`SELECT text FROM rows WHERE kind = ${KIND} AND id = ?`).get(kind, id)?.['text']),
      ),
    write: (kind, id, text) =>
      on((database) => {
        database.exec('BEGIN IMMEDIATE');
        const insert = `INSERT INTO rows (kind, id, version, text) VALUES (${KIND}, ?, 'forged', ?)
          ON CONFLICT (kind, id) DO UPDATE SET text = excluded.text, version = excluded.version`;
        database.prepare(insert).run(kind, id, text);
        if (kind === 'api_key')
          database
            .prepare(
              `INSERT OR IGNORE INTO places (list, at, id) SELECT n, 0, ? FROM names WHERE type = 2 AND name = 'keys'
               AND NOT EXISTS (SELECT 1 FROM places WHERE list = n AND id = ?)`,
            )
            .run(id, id);
        database.exec('COMMIT');
      }),
    async close() {
      await store.close();
      rmSync(path, { recursive: true });
    },
  };
});
