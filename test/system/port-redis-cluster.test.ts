import { afterAll, beforeAll } from 'vitest';
import { describePort } from '../port/port-contract.ts';
import { rowsIn } from '../redis/rows.ts';
import { type RedisCluster, startCluster } from '../redis/servers.ts';

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
