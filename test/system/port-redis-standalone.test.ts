import { afterAll, beforeAll } from 'vitest';
import { describePort } from '../port/port-contract.ts';
import { rowsIn } from '../redis/rows.ts';
import { type RedisServer, startRedis } from '../redis/servers.ts';

const servers: RedisServer[] = [];
beforeAll(async () => {
  servers.push(await startRedis());
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
});

describePort(
  'Redis, standalone',
  rowsIn(() => servers, 'standalone', false),
  'the server’s clock is real',
);
describePort(
  'Redis, standalone, by a clock of the test',
  rowsIn(() => servers, 'standalone', true),
  null,
);
