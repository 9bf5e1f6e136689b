import { rmSync } from 'node:fs';
import { afterAll, beforeAll } from 'vitest';
import { openRedisStore } from '../../src/gateway/redis-store.ts';
import { describeForgedKeys } from '../records/forged-keys.ts';
import { journalFolder, redisOptions } from '../redis/contract.ts';
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
  const store = await openRedisStore(redisOptions(server, { journalFolder: folder, keySeals }));
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
