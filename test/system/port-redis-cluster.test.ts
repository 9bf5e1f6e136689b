import { rmSync } from 'node:fs';
import { afterAll, beforeAll, test } from 'vitest';
import { metaKey } from '../../src/stores/redis/names.ts';
import { openRedisRows } from '../../src/stores/redis/rows/open.ts';
import { changeOf } from '../port/changes.ts';
import { describePort } from '../port/port-contract.ts';
import { journalFolder } from '../redis/contract.ts';
import { rowsIn, rowsOptions } from '../redis/rows.ts';
import { type RedisCluster, startCluster, until } from '../redis/servers.ts';

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster.stop());

describePort(
  'Redis, cluster',
  rowsIn(() => cluster.nodes, 'cluster', false),
  'the servers’ clocks are real',
);

test('a gateway that sees nothing of one node is not ready, whatever it is answered by the others', async () => {
  await Promise.all(cluster.nodes.map(({ client }) => client.flushall()));
  const [first] = cluster.nodes;
  if (first === undefined) throw new Error('a cluster has nodes');
  const folder = journalFolder();
  const nodes = cluster.nodes.map(({ address }) => address);
  const store = await openRedisRows(rowsOptions(first, { mode: 'cluster', nodes, journalFolder: folder }));
  const home = await cluster.primaryOf(metaKey(''));
  let away = '';
  for (let n = 0; away === ''; n += 1) if ((await cluster.primaryOf(metaKey(`w${n}`))) !== home) away = `w${n}`;
  const frozen = await cluster.primaryOf(metaKey(away));
  // Of both a part of what is watched.
  for (const workspace of ['', away]) await store.commit(changeOf(workspace, 1));
  await until(() => store.health().ready);
  frozen.signal('SIGSTOP');
  try {
    await until(async () => {
      await store.commit(changeOf('', 1));
      return store.health().problem?.message === 'Redis does not answer';
    });
  } finally {
    frozen.signal('SIGCONT');
  }
  await until(() => store.health().ready);
  await store.close();
  rmSync(folder, { recursive: true });
});
