import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openRedisStore } from '../../src/gateway/redis-store.ts';
import {
  ANY,
  budgetOf,
  claimRequest,
  committed,
  dispatched,
  permit,
  settleRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { journalFolder, redisOptions } from '../redis/contract.ts';
import { startRedis } from '../redis/servers.ts';

const PAGE = join(import.meta.dirname, '..', '..', 'docs', 'operating', 'redis.md');

it('an account with the rights that the page names is refused nothing', async () => {
  const [, rights = ''] = /^ +ACL SETUSER (.+)$/m.exec(readFileSync(PAGE, 'utf8')) ?? [];
  const [user = '', ...rules] = rights.split(' ');
  const server = await startRedis();
  const folder = journalFolder();
  try {
    await server.client.call('ACL', 'SETUSER', user, ...rules);
    const url = `${server.url.replace('//', `//${user}:PASSWORD@`)}/1`;
    const open = () => openRedisStore(redisOptions(server, { url, journalFolder: folder }));
    const store = await open();
    const { effect } = await dispatched(store, { idempotencyKey: 'k', verdict: permit([budgetOf(100, 7)]) });
    await store.settle(settleRequest(effect, committed()));
    await store.takeClaim(claimRequest('customer:7'));
    expect((await store.effects(WORKSPACE, ANY)).items).toHaveLength(1);
    expect(await store.budgets(WORKSPACE)).toHaveLength(1);
    await store.sweep(10);
    await expect.poll(() => store.health()).toMatchObject({ ready: true });
    await store.close();
    const again = await open();
    expect(await again.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'committed' } });
    await again.close();
    expect(await server.client.call('ACL', 'LOG')).toEqual([]);
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true });
  }
});
