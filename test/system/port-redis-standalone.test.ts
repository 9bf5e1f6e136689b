import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { clockOf, changeOf, sumOf } from '../port/changes.ts';
import { describePort } from '../port/port-contract.ts';
import { openRedisRows } from '../../src/stores/redis/rows/open.ts';
import { journalFolder } from '../redis/contract.ts';
import { rowsIn, rowsOptions } from '../redis/rows.ts';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';

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

test('of figures that were removed nothing is left on the server', async () => {
  const place = await rowsIn(() => servers, 'standalone', true)();
  const { store } = place;
  const keys = async (): Promise<readonly string[]> => (await servers[0]?.client.keys('svc:{w}:*'))?.toSorted() ?? [];
  const begun = store.now();
  const { epoch } = await store.commit(changeOf('w', 1));
  const before = await keys();
  const spans = [
    { kind: 'rolling', ms: 1000 },
    { kind: 'until', end: begun + 1000 },
  ] as const;
  const sums = spans.map((span) => sumOf(span.kind, { span, group: span.kind, spend: 1 }));
  // What was spent in earlier slots of a rolling figure stands beside it.
  for (const later of [0, 10, 20]) {
    clockOf(place)(begun + later);
    await store.commit(changeOf('w', epoch, { sums }));
  }
  expect((await keys()).length).toBeGreaterThan(before.length);
  clockOf(place)(begun + 10_000);
  expect(await store.prune('w', 10)).toBe(2);
  expect(await keys()).toEqual(before);
  await place.close();
});

test('of gateways and commands that ended only what a later loss has to know is left on the server', async () => {
  const [server] = servers;
  if (server === undefined) throw new Error('no server runs');
  await server.client.flushall();
  const namesIn = (hash: string): Promise<string[]> => server.client.hkeys(`svc:{_}:${hash}`);
  for (const gatewayId of ['gw-1', 'command:1']) {
    const folder = journalFolder();
    const store = await openRedisRows(rowsOptions(server, { gatewayId, journalFolder: folder }));
    store.announce({ policies: 'v1', configuration: 'c1' });
    await until(async () => (await namesIn('on')).includes(gatewayId));
    await store.close();
    rmSync(folder, { recursive: true });
  }
  // What a gateway sent is in its journal, and its next boot ends the one before. A command has neither.
  expect(await Promise.all(['away', 'gb', 'gw', 'on'].map(namesIn))).toEqual([['gw-1'], ['gw-1'], [], []]);
});
