import { rmSync } from 'node:fs';
import { afterAll, beforeAll } from 'vitest';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { openRedisRows } from '../../src/stores/redis/rows/open.ts';
import { describeForgedKeys } from '../records/forged-keys.ts';
import { journalFolder } from '../redis/contract.ts';
import { rowsOptions } from '../redis/rows.ts';
import { type RedisServer, startRedis } from '../redis/servers.ts';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

const keyOf = (kind: string, id: string): string => `svc:{_}:r:${kind}:${id}`;

describeForgedKeys('Redis, by a client of its own', async (keySeals) => {
  const { client } = server;
  await client.flushall();
  const folder = journalFolder();
  const rows = await openRedisRows(rowsOptions(server, { journalFolder: folder }));
  const store = createEffectStore(
    { ...rows, installId: rows.installId, ended: { any: () => false, quietAt: () => null, none: () => undefined } },
    { retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 }, keySeals, maxFreezeMs: 0 },
  );
  return {
    store,
    async text(kind, id) {
      const row = (await client.get(keyOf(kind, id))) ?? '';
      return row.slice(row.indexOf(' ') + 1);
    },
    async write(kind, id, text) {
      await client.set(keyOf(kind, id), `forged ${text}`);
      const lists = await client.keys('svc:{_}:l:keys');
      if (kind === 'api_key') for (const list of lists) await client.zadd(list, 'NX', 0, id);
    },
    async close() {
      await store.close();
      rmSync(folder, { recursive: true });
    },
  };
});
