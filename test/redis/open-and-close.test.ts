import { rmSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import type { Watched } from '../../src/stores/port.ts';
import { openRedisRows, type RedisRowsOptions } from '../../src/stores/redis/rows/open.ts';
import { changeOf, done, putOf } from '../port/changes.ts';
import { journalFolder } from './contract.ts';
import { rowsOptions } from './rows.ts';
import { type RedisServer, startRedis, startReplicated, until } from './servers.ts';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

let folder = '';
const closers: (() => Promise<unknown>)[] = [];
beforeEach(async () => {
  folder = journalFolder();
  await server.client.flushall();
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

async function open(of: RedisServer, more: Partial<RedisRowsOptions> = {}) {
  const store = await openRedisRows(rowsOptions(of, { journalFolder: folder, ...more }));
  closers.push(() => store.close());
  return store;
}

const connected = async (name: string): Promise<boolean> =>
  String(await server.client.client('LIST')).includes(`name=svc:${name}`);

it('a gateway is gone from the fleet once replicas know all that it wrote, and stays in it where they do not', async () => {
  const { primary, replicas, stop } = await startReplicated(1, ['--appendfsync', 'everysec']);
  closers.push(stop);
  const [replica] = replicas;
  const isThere = () => primary.client.hexists('svc:{_}:gw', 'gw-1');
  const one = await open(primary, { durability: 'replica' });
  await one.close();
  expect(await isThere()).toBe(0);
  const again = await open(primary, { durability: 'replica' });
  replica?.signal('SIGSTOP');
  await again.close();
  replica?.signal('SIGCONT');
  expect(await isThere()).toBe(1);
});

it('a store that cannot be opened leaves nothing open: neither connections nor its journal', async () => {
  const name = { gatewayId: 'gw-9' };
  await expect(open(server, { ...name, durability: 'local' })).rejects.toThrow('allow_weak_durability');
  await until(async () => !(await connected('gw-9')));
  await (await open(server, { journalFolder: `${folder}/other` })).close();
  await server.client.hset('svc:{_}:gw', 'gw-9', '1');
  await expect(open(server, name)).rejects.toThrow('gateway gw-9 is registered in the store');
  await until(async () => !(await connected('gw-9')));
  await server.client.hdel('svc:{_}:gw', 'gw-9');
  const store = await open(server, name);
  expect(store.health()).toMatchObject({ ready: true, problem: null });
}, 30_000);

it('a look at a workspace that is not there makes none, and a clock that is trusted is not accepted', async () => {
  const store = await open(server);
  await store.ended.known('nobody');
  expect(await server.client.keys('*nobody*')).toEqual([]);
  done(await store.commit(changeOf('shop', 1, { puts: [putOf('thing', 'a', 'x')] })));
  expect((await store.workspaces()).toSorted()).toEqual(['', 'shop']);
  expect(await store.acceptTime()).toBeNull();
  await store.close();
  await expect(store.commit(changeOf('shop', 1))).rejects.toThrow('the store is closed');
  await expect(store.read('shop', [], [])).rejects.toThrow('the store is closed');
});

it('a change that others tell of is heard once, by who watches its kind: of this installation, in order, without a gap', async () => {
  const store = await open(server);
  done(await store.commit(changeOf('shop', 1, { events: [{ about: null, text: 'x' }] })));
  const heard: Watched[] = [];
  store.watch(['thing'], (changed) => void heard.push(changed));
  await until(async () => (await server.client.hget('svc:{shop}:w', 'loud'))?.includes(' thing ') === true);
  const tell = (message: string, of = store.installId) =>
    server.client.publish('svc:{shop}:changes', `${of} ${message}`);
  await tell('row 0 100 thing wrong', 'another');
  await tell('row 0 100 thing a');
  await tell('row 98 99 thing late');
  await tell('row 100 101 other c');
  // What changed between 100 and 102 was not heard: all may have.
  await tell('row 102 103 thing b');
  await tell('row 103 104 thing of two words');
  await until(() => heard.length >= 3);
  const changed = { workspace: 'shop', kind: 'thing' };
  expect(heard).toEqual(['a', null, 'of two words'].map((id) => ({ ...changed, id })));
});
