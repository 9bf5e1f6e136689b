import { afterAll, beforeAll, expect, it } from 'vitest';
import { type RedisServer, startRedis, startReplicated, until } from '../redis/servers.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { refund } from './world.ts';

/** So slow is the primary to copy one key for a replica that joins, µs. */
const PER_KEY = '40000';

let replicated: Awaited<ReturnType<typeof startReplicated>>;
let joining: RedisServer;
let fleet: Fleet;
beforeAll(async () => {
  replicated = await startReplicated(1, ['--appendfsync', 'everysec']);
  joining = await startRedis();
  fleet = await startFleet({ gateways: 1, store: `url: "${replicated.primary.url}", durability: replica` });
});
afterAll(async () => {
  await fleet.close();
  await joining.stop();
  await replicated.stop();
});

it('a replica that is being filled holds up no write; once it is in step it counts', async () => {
  const { primary } = replicated;
  const states = async (): Promise<readonly string[]> =>
    [...(await primary.client.info('replication')).matchAll(/^slave\d+:.*state=(\w+)/gm)].map(
      ([, state = '']) => state,
    );
  for (let n = 0; n < 20; n += 1) expect((await fleet.run(0, refund({ amount: 1 }))).body.decision).toBe('committed');
  await primary.client.config('SET', 'rdb-key-save-delay', PER_KEY);
  await joining.client.call('REPLICAOF', '127.0.0.1', String(primary.port));
  await until(async () => (await states()).length === 2);
  let meanwhile = 0;
  while ((await states()).filter((state) => state === 'online').length === 1) {
    const { decision } = (await fleet.run(0, refund({ amount: 1 }))).body;
    // The copy may have come to its end while the call ran; were writes held up, none would be committed before.
    const isFilling = (await states()).filter((state) => state === 'online').length === 1;
    if (isFilling && decision === 'committed') meanwhile += 1;
  }
  expect(meanwhile).toBeGreaterThan(5);

  await until(async () => (await fleet.run(0, refund({ amount: 1 }))).body.decision === 'committed');
  joining.signal('SIGSTOP');
  // The gateway may look a second later.
  await until(async () => (await fleet.run(0, refund({ amount: 1 }))).status === 503);
  const stopped = await fleet.upstream.counts();
  expect((await fleet.run(0, refund({ amount: 1 }))).status).toBe(503);
  expect(await fleet.upstream.counts()).toEqual(stopped);
  joining.signal('SIGCONT');
  await until(async () => (await fleet.run(0, refund({ amount: 1 }))).body.decision === 'committed');
});
