import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openRedisStore, type RedisStore, type RedisStoreOptions } from '../../src/gateway/redis-store.ts';
import { awakeMs } from '../awake-clock.ts';
import { admitRequest } from '../contract/requests.ts';
import { redisOptions } from '../redis/contract.ts';
import { type RedisServer, startReplicated, startSentinels, until } from '../redis/servers.ts';

/** The longest that nothing may be written when the primary is lost, ms. */
const WRITE_PAUSE_MS = 5000;

let folder = '';
const closers: (() => Promise<unknown>)[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-sentinel-store-'));
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

async function open(of: RedisServer, more: Partial<RedisStoreOptions> = {}): Promise<RedisStore> {
  const store = await openRedisStore(redisOptions(of, { journalFolder: join(folder, 'gw-1'), ...more }));
  closers.push(() => store.close());
  return store;
}

async function primaryOf(servers: readonly RedisServer[]): Promise<RedisServer> {
  for (const one of servers) {
    const info = await one.client.info('replication').catch(() => '');
    if (info.includes('role:master')) return one;
  }
  throw new Error('no server is a primary');
}

/** After a kill: for twice its `failover-timeout` Sentinel begins no other fail-over, ms. */
const SENTINEL_RESTS_MS = 9500;

describe('a fail-over by Sentinel', () => {
  it('keeps every acknowledged admission, with durability replica, over two kills of the primary', async () => {
    const replicated = await startReplicated(2, ['--appendfsync', 'everysec', '--repl-timeout', '5']);
    closers.push(() => replicated.stop());
    const sentinel = await startSentinels(replicated.primary);
    closers.push(() => sentinel.stop());
    const store = await open(replicated.primary, {
      mode: 'sentinel',
      url: 'redis://svc',
      nodes: sentinel.addresses,
      durability: 'replica',
    });
    const servers = [replicated.primary, ...replicated.replicas];
    const acknowledged = new Map<string, string>();
    const pauses: number[] = [];
    let stop = false;
    const load = (async () => {
      while (!stop) {
        const request = admitRequest();
        const admission = await store.admit(request).catch(() => null);
        if (admission?.kind === 'dispatch') acknowledged.set(request.idempotencyKey, admission.effect.id);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    })();
    for (let kill = 0; kill < 2; kill += 1) {
      const count = acknowledged.size;
      await until(() => acknowledged.size > count + 50);
      const primary = await primaryOf(servers);
      await primary.kill();
      const before = acknowledged.size;
      const killed = performance.now();
      const since = awakeMs();
      await until(() => acknowledged.size > before);
      pauses.push(awakeMs() - since);
      await until(() => acknowledged.size > before + 10);
      await primary.start();
      // Sentinel would make it a replica as well, ten seconds later.
      const next = await primaryOf(servers.filter((one) => one !== primary));
      await primary.client.call('REPLICAOF', '127.0.0.1', String(next.port));
      await until(async () => (await primary.client.info('replication')).includes('master_link_status:up'));
      if (kill === 0) await until(() => performance.now() - killed > SENTINEL_RESTS_MS);
    }
    stop = true;
    await load;
    expect(acknowledged.size).toBeGreaterThan(100);
    // Each of them: not the better of the two.
    expect(Math.max(...pauses)).toBeLessThan(WRITE_PAUSE_MS);
    const isKept = async ([idempotencyKey, id]: readonly [string, string]): Promise<void> => {
      // Sentinel may still be moving connections about.
      let answer: unknown = null;
      await until(async () => {
        answer = await store.admit(admitRequest({ idempotencyKey }));
        return true;
      });
      expect(answer).toMatchObject({ kind: 'existing', effect: { id } });
    };
    await Promise.all([...acknowledged].map(isKept));
  }, 240_000);
});
