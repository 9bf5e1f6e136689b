import { afterAll, beforeAll } from 'vitest';
import { describeStoreContract } from '../contract/store-contract.ts';
import { redisIn } from '../redis/contract.ts';
import { type RedisCluster, startCluster } from '../redis/servers.ts';

let cluster: RedisCluster | null = null;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster?.stop());

describeStoreContract(
  'Redis Cluster',
  redisIn(() => cluster?.nodes ?? [], 'cluster'),
  {
    noClock: null,
  },
);
