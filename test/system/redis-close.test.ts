import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { openRedisStore } from '../../src/gateway/redis-store.ts';
import { keyOf, metaKey } from '../../src/stores/redis/names.ts';
import { redisOptions } from '../redis/contract.ts';
import { type CountedRoute, countedRoute } from '../redis/counted-route.ts';
import { type RedisServer, startRedis } from '../redis/servers.ts';

/** Each answer of the server takes so long, so that looks are under way when the end comes, ms. */
const ANSWER_MS = 5;
const TIMES = 6;

it('a store that is closed while others come and go: nothing is written beside it later, and it stays out of the fleet', async () => {
  const server = await startRedis();
  const route = await countedRoute(server.port);
  try {
    for (let time = 0; time < TIMES; time += 1) await closeAmongNews(server, route);
  } finally {
    await route.stop();
    await server.stop();
  }
});

async function closeAmongNews(server: RedisServer, route: CountedRoute): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'svc-redis-close-'));
  await server.client.flushall();
  route.delay(0);
  const store = await openRedisStore(redisOptions(server, { url: route.url, journalFolder: folder }));
  store.announce({ policies: 'p', configuration: 'c' });
  route.delay(ANSWER_MS);
  // Another gateway that comes or goes changes the number of the members, and says so to all.
  let over = false;
  const news = (async () => {
    while (!over)
      await server.client
        .multi()
        .hincrby(metaKey(''), 'members', 1)
        .publish('svc:{_}:changes', `${store.installId} gateway`)
        .exec();
  })();
  await sleep(20 * ANSWER_MS);
  await store.close();
  const memory = (): string => readFileSync(join(folder, 'install.json'), 'utf8');
  const left = memory();
  await sleep(20 * ANSWER_MS);
  over = true;
  await news;
  expect(memory()).toBe(left);
  expect(await server.client.hexists(keyOf('', 'gw'), 'gw-1')).toBe(0);
  rmSync(folder, { recursive: true });
}
