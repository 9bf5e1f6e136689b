import { afterAll, beforeAll } from 'vitest';
import { describeStoreContract } from '../contract/store-contract.ts';
import { openThroughProgram, redisIn } from '../redis/contract.ts';
import { type RedisServer, startRedis } from '../redis/servers.ts';

let servers: readonly RedisServer[] = [];
beforeAll(async () => {
  servers = [await startRedis()];
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));

// On a cluster, steps run as they do on one core and in commands.
describeStoreContract(
  'Redis, standalone,',
  redisIn(
    () => servers,
    'standalone',
    (options) => openThroughProgram(options),
  ),
  {
    noClock: null,
  },
);
