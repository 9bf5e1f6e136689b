import { afterAll, beforeAll } from 'vitest';
import { describeStoreContract } from '../contract/store-contract.ts';
import { redisIn } from '../redis/contract.ts';
import { type RedisServer, startRedis } from '../redis/servers.ts';

let servers: readonly RedisServer[] = [];
beforeAll(async () => {
  servers = [await startRedis()];
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));

describeStoreContract(
  'Redis, standalone,',
  redisIn(() => servers, 'standalone'),
  {
    noClock: null,
  },
);
