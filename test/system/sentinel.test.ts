import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { awakeMs } from '../awake-clock.ts';
import { type RedisServer, startReplicated, startSentinels, until } from '../redis/servers.ts';
import { type Fleet, startFleet } from './fleet.ts';
import type { Answer } from './gateway.ts';
import { steadyCalls } from './steady-calls.ts';
import { refund } from './world.ts';

/** The longest that nothing may be written when the primary is lost, ms. */
const WRITE_PAUSE_MS = 5000;

let replicated: Awaited<ReturnType<typeof startReplicated>>;
let sentinels: Awaited<ReturnType<typeof startSentinels>>;
let fleet: Fleet;
beforeAll(async () => {
  replicated = await startReplicated(2, ['--appendfsync', 'everysec', '--repl-timeout', '5']);
  sentinels = await startSentinels(replicated.primary, 3);
  // All that the gateways know.
  const nodes = sentinels.addresses.map((address) => `"${address}"`).join(', ');
  fleet = await startFleet({
    gateways: 2,
    store: `mode: sentinel, url: "redis://svc", nodes: [${nodes}], max_freeze: 1s`,
  });
});
afterAll(async () => {
  await fleet.close();
  await sentinels.stop();
  await replicated.stop();
});

async function primaryOf(servers: readonly RedisServer[]): Promise<RedisServer> {
  for (const one of servers) {
    const info = await one.client.info('replication').catch(() => '');
    if (info.includes('role:master')) return one;
  }
  throw new Error('no server is a primary');
}

async function ready(gateway: number): Promise<Answer['body']> {
  return (await fleet.ask(gateway, 'GET', '/readyz')).body;
}

describe('gateways that find their Redis through three sentinels', () => {
  it('are one, with durability replica', async () => {
    expect(await ready(1)).toMatchObject({ ready: true, store: { durability: 'replica' } });
    const call = refund();
    const first = await fleet.run(0, call);
    expect([first.status, first.body.decision]).toEqual([200, 'committed']);
    const again = await fleet.run(1, call);
    expect([again.status, again.body.decision]).toEqual([409, 'duplicate_blocked']);
    expect(again.body.receipt).toEqual(first.body.receipt);
  });

  it('go on by themselves when the primary is killed, within 5 s; nothing answered is lost, nothing runs twice', async () => {
    const servers = [replicated.primary, ...replicated.replicas];
    const calls = steadyCalls(fleet, [0, 1]);
    try {
      await calls.more(30);
      const old = await primaryOf(servers);
      await old.kill();
      const pauseMs = await calls.pauseSince(awakeMs());
      console.log(JSON.stringify({ failover: 'sentinel', writePauseMs: Math.round(pauseMs) }));
      expect(pauseMs).toBeLessThan(WRITE_PAUSE_MS);
      // It comes back as a primary of its own, until the sentinels make a replica of it: nobody may turn to it.
      await old.start();
      await calls.more(30);
      for (const gateway of [0, 1]) await until(async () => (await ready(gateway)).ready === true);
      // A sentinel that takes connections and answers nothing is left for another.
      sentinels.freeze(0);
      const primary = await primaryOf(servers.filter((one) => one !== old));
      await primary.client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      await calls.pauseSince(awakeMs());
    } finally {
      await calls.stop();
    }
    await calls.expectOnceEach();
  });
});
