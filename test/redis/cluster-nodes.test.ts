import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { openCluster, openSinglePrimary } from '../../src/stores/redis/topology.ts';
import { type RedisServer, routeTo, startRedis, until } from './servers.ts';

const SETTINGS = {
  access: { username: null, password: null, database: 0, tls: false },
  durability: 'fsync',
  allowWeakDurability: false,
  gatewayId: 'one',
  clock: () => '',
  atFirstStart: () => false,
} as const;

/** A cluster as a gateway sees it. */
const clusterAt = (port: number) => openCluster([{ host: '127.0.0.1', port }], SETTINGS);

it('once the nodes of the configuration are gone, those that the cluster named are asked where its slots are', async () => {
  // Without an append-only file no gateway works on it, so there is no connection yet that could be asked instead.
  const server = await startRedis(['--cluster-enabled', 'yes', '--appendonly', 'no'], true);
  await server.client.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
  const route = await routeTo(server);
  const cluster = clusterAt(Number(new URL(route.url).port));
  await cluster.relocate();
  await expect(cluster.ready()).rejects.toThrow('append-only');
  expect(() => cluster.primaryOf('demo').connection()).toThrow(StoreUnavailable);
  route.cut();
  // So often at most it looks.
  await delay(250);
  await cluster.relocate();
  expect(cluster.primaries()).toHaveLength(1);
  cluster.close();
  await route.stop();
  await server.stop();
});

const movedTo = ({ port }: RedisServer): StoreUnavailable =>
  new StoreUnavailable('Redis: MOVED 903', { cause: new Error(`MOVED 903 127.0.0.1:${port}`) });

it('what a node said of the slots before somebody was sent elsewhere does not lead back', async () => {
  const [old, next] = await Promise.all([1, 2].map(() => startRedis(['--cluster-enabled', 'yes'], true)));
  if (old === undefined || next === undefined) throw new Error('there are two');
  await old.client.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
  const cluster = clusterAt(old.port);
  await cluster.ready();
  await delay(250);
  // It is asked, and answers only once its slot has gone.
  old.signal('SIGSTOP');
  const asked = cluster.relocate();
  await cluster.follow('demo', movedTo(next));
  old.signal('SIGCONT');
  await asked;
  expect(await cluster.primaryOf('demo').connection().command('CONFIG', 'GET', 'port')).toEqual([
    'port',
    String(next.port),
  ]);
  cluster.close();
  await Promise.all([old.stop(), next.stop()]);
});

it('a node that has no slots any more is left', async () => {
  const [old, next] = await Promise.all([1, 2].map(() => startRedis(['--cluster-enabled', 'yes'], true)));
  if (old === undefined || next === undefined) throw new Error('there are two');
  for (const { client } of [old, next]) await client.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
  const cluster = clusterAt(old.port);
  await cluster.ready();
  const connected = async ({ client }: RedisServer): Promise<boolean> =>
    String(await client.client('LIST')).includes('name=svc:one');
  expect([await connected(old), await connected(next)]).toEqual([true, false]);
  await cluster.follow('demo', movedTo(next));
  expect(cluster.primaries()).toHaveLength(2);
  await delay(250);
  await cluster.relocate();
  expect(cluster.primaries()).toHaveLength(1);
  await until(async () => !(await connected(old)));
  expect(await connected(next)).toBe(true);
  cluster.close();
  await Promise.all([old.stop(), next.stop()]);
});

it('where a server names no host it is its own; what says nothing of a place is an error, as it came', async () => {
  const server = await startRedis(['--cluster-enabled', 'yes'], true);
  await server.client.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
  const cluster = clusterAt(server.port);
  await cluster.ready();
  const nameless = new StoreUnavailable('Redis: MOVED 903', { cause: new Error(`MOVED 903 :${server.port}`) });
  await cluster.follow('demo', nameless);
  expect(cluster.primaries()).toHaveLength(1);
  const unreadable = new StoreUnavailable('Redis: MOVED 903');
  await expect(cluster.follow('demo', unreadable)).rejects.toBe(unreadable);
  // Whatever goes wrong, it is not asked over and over.
  await server.client.config('RESETSTAT');
  for (let time = 0; time < 20; time += 1) await cluster.relocate();
  const stats = await server.client.info('commandstats');
  expect(Number(/^cmdstat_cluster\|slots:calls=(\d+)/m.exec(stats)?.[1] ?? 0)).toBeLessThan(3);
  cluster.close();
  await server.stop();
});

it('a server is worked on once its settings are corrected, or once it is a primary, and not before', async () => {
  const server = await startRedis(['--maxmemory-policy', 'allkeys-lru']);
  const single = openSinglePrimary({ kind: 'address', address: { host: '127.0.0.1', port: server.port } }, SETTINGS);
  const primary = single.primaryOf('demo');
  await expect(single.ready()).rejects.toThrow('noeviction');
  expect(() => primary.connection()).toThrow('noeviction');
  await server.client.config('SET', 'maxmemory-policy', 'noeviction');
  await until(() => primary.fault() === null);
  expect(await primary.connection().command('PING')).toBe('PONG');
  await server.client.call('REPLICAOF', '127.0.0.1', '1');
  primary.connection().reset();
  await until(() => primary.fault()?.includes('is a slave, not a primary') === true);
  expect(() => primary.connection()).toThrow(StoreUnavailable);
  await server.client.call('REPLICAOF', 'NO', 'ONE');
  await until(() => primary.fault() === null);
  await primary.ready();
  single.close();
  await server.stop();
}, 30_000);
