import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { awakeMs } from '../awake-clock.ts';
import { type RedisCluster, type RedisServer, startCluster, until } from '../redis/servers.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { makeApiKey } from './gateway.ts';
import { steadyCalls } from './steady-calls.ts';
import { refund } from './world.ts';

/** The longest that nothing may be written when a primary is lost, ms. */
const WRITE_PAUSE_MS = 10_000;

let cluster: RedisCluster;
let fleet: Fleet;
beforeAll(async () => {
  cluster = await startCluster(2);
  const nodes = cluster.nodes.map(({ address }) => `"${address}"`).join(', ');
  const store = `mode: cluster, url: "redis://cluster", nodes: [${nodes}], max_freeze: 1s`;
  fleet = await startFleet({ gateways: 2, store });
});
afterAll(async () => {
  await fleet.close();
  await cluster.stop();
});

describe('gateways on a cluster of three primaries', () => {
  it('are one, with durability replica', async () => {
    const ready = await fleet.ask(1, 'GET', '/readyz');
    expect(ready.body).toMatchObject({ ready: true, store: { durability: 'replica' } });
    const call = refund();
    const first = await fleet.run(0, call);
    expect([first.status, first.body.decision]).toEqual([200, 'committed']);
    const again = await fleet.run(1, call);
    expect([again.status, again.body.decision]).toEqual([409, 'duplicate_blocked']);
    expect(again.body.receipt).toEqual(first.body.receipt);
  });

  it('keep each workspace in the slot of its name', async () => {
    const owner = await cluster.primaryOf('{demo}');
    for (const node of cluster.nodes) {
      const keys = await node.client.keys('svc:{demo}:*');
      expect(keys.length > 0).toBe(node === owner);
    }
  });

  it('go on in other workspaces where the primary of the installation has lost its replicas', async () => {
    expect((await fleet.run(0, refund())).body).toMatchObject({ decision: 'committed' });
    const at = cluster.nodes.indexOf(await cluster.primaryOf('{_}'));
    expect(await cluster.primaryOf('{demo}')).not.toBe(cluster.nodes[at]);
    const lost = cluster.replicas.filter((_, index) => index % cluster.nodes.length === at);
    for (const replica of lost) await replica.kill();
    try {
      // Begins with reading, which fails already.
      const key = { name: 'lost', kind: 'account', workspace: 'demo' };
      const made = await fleet.ask(0, 'POST', '/v1/beta/users/tom/keys', key, fleet.gateways[0]?.administrativeKey);
      expect(made.status).toBe(503);
      await until(async () => (await fleet.ask(0, 'GET', '/readyz')).body.ready === false);
      expect((await fleet.run(0, refund())).body).toMatchObject({ decision: 'committed' });
      expect((await fleet.ask(0, 'GET', '/readyz')).body.ready).toBe(false);
    } finally {
      for (const replica of lost) await replica.start();
      for (const replica of lost)
        await until(async () => (await replica.client.info('replication')).includes('master_link_status:up'));
    }
    for (const gateway of [0, 1])
      await until(async () => (await fleet.ask(gateway, 'GET', '/readyz')).body.ready === true);
  });

  it('go on where a replica has gone to another primary, as Redis sends one to where none is left', async () => {
    const owner = await cluster.primaryOf('{demo}');
    const moved = cluster.replicas[cluster.nodes.indexOf(owner)];
    const of = async (primary: RedisServer): Promise<void> => {
      await moved?.client.call('CLUSTER', 'REPLICATE', String(await primary.client.call('CLUSTER', 'MYID')));
      const port = `master_port:${primary.port}\r\nmaster_link_status:up`;
      await until(async () => (await moved?.client.info('replication'))?.includes(port) === true);
    };
    expect((await fleet.run(0, refund())).body).toMatchObject({ decision: 'committed' });
    await of(await cluster.primaryOf('{_}'));
    try {
      // What is sent before they are counted anew may be refused.
      await until(async () => (await fleet.run(0, refund())).body.decision === 'committed');
    } finally {
      await of(owner);
    }
  });

  it('go on by themselves when the primary of a workspace is killed; nothing answered is lost, nothing runs twice', async () => {
    const other = await elsewhere(fleet);
    const calls = steadyCalls(fleet, [0, 1]);
    try {
      await calls.more(30);
      const owner = await cluster.primaryOf('{demo}');
      await cluster.kill(owner);
      const killed = awakeMs();
      // Workspaces on the other nodes go on meanwhile.
      await other();
      const pause = await calls.pauseSince(killed);
      await other();
      console.log(JSON.stringify({ failover: 'cluster', writePauseMs: Math.round(pause) }));
      expect(pause).toBeLessThan(WRITE_PAUSE_MS);
      for (const gateway of [0, 1])
        await until(async () => (await fleet.ask(gateway, 'GET', '/readyz')).body.ready === true);
      await owner.start();
      await until(async () => (await owner.client.info('replication')).includes('master_link_status:up'));
      await calls.more(30);
    } finally {
      await calls.stop();
    }
    await calls.expectOnceEach();
  });
});

/** A call in the other workspace, whose slot is on another node, that has to be committed. */
async function elsewhere(of: Fleet): Promise<() => Promise<void>> {
  expect(await cluster.primaryOf('{elsewhere}')).not.toBe(await cluster.primaryOf('{demo}'));
  const key = await makeApiKey(of.gateways[0]!, 'tom', { kind: 'account', workspace: 'elsewhere' });
  return async () => {
    const body = { ...refund(), agent_id: 'stranger' };
    expect((await of.ask(0, 'POST', '/v1/workspaces/elsewhere/effects', body, key)).body.decision).toBe('committed');
  };
}
