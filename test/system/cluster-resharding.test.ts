import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { script } from '../../src/stores/redis/scripts.ts';
import { slotOf } from '../../src/stores/redis/names.ts';
import { moveSlot, type RedisCluster, type RedisServer, startCluster } from '../redis/servers.ts';
import { svcBeside } from './command-line.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { until } from '../redis/servers.ts';
import { steadyCalls } from './steady-calls.ts';
import { refund } from './world.ts';

/* Slots of a cluster are moved from node to node, as who adds a node does, while calls are decided. */

let cluster: RedisCluster;
let fleet: Fleet;
beforeAll(async () => {
  cluster = await startCluster();
  const nodes = cluster.nodes.map(({ address }) => `"${address}"`).join(', ');
  fleet = await startFleet({
    gateways: 2,
    store: `mode: cluster, url: "redis://cluster", nodes: [${nodes}], durability: fsync`,
  });
});
afterAll(async () => {
  await fleet?.close();
  await cluster?.stop();
});

const other = (than: RedisServer): RedisServer => {
  const found = cluster.nodes.find((node) => node !== than);
  if (found === undefined) throw new Error('there is one node alone');
  return found;
};

async function ownerOf(slot: number): Promise<RedisServer> {
  for (const node of cluster.nodes) {
    const own = String(await node.client.call('CLUSTER', 'COUNTKEYSINSLOT', slot));
    if (own !== '0') return node;
  }
  throw new Error('nobody has keys of the slot');
}

async function expectSound(): Promise<void> {
  const { code, out } = await svcBeside(fleet, 0, 'fsck');
  expect([code, out]).toEqual([0, 'The store is as its ledger says.\n']);
}

it('a workspace whose slot is moved is refused meanwhile, and goes on at its new node, with nothing half written', async () => {
  const slot = slotOf('demo');
  const calls = steadyCalls(fleet, [0, 1, 0, 1]);
  try {
    await calls.more(60);
    let at = await ownerOf(slot);
    for (let times = 0; times < 4; times += 1) {
      const next = other(at);
      await moveSlot(slot, at, next, { between: () => delay(10) });
      at = next;
      // At once, also where the other nodes have not heard of it.
      for (const gateway of [0, 1])
        expect((await fleet.ask(gateway, 'GET', '/v1/workspaces/demo/effects?limit=1')).status).toBe(200);
      await calls.more(40);
    }
  } finally {
    await calls.stop();
  }
  await calls.expectOnceEach();
  await expectSound();
});

it('what is asked while some keys are at the other node already is not done, not half of it either', async () => {
  const slot = slotOf('demo');
  const from = await ownerOf(slot);
  const pauses = '/v1/workspaces/demo/pauses';
  // Both have to have found the node that the slot was moved to last.
  for (const gateway of [0, 1])
    await until(async () => (await fleet.run(gateway, refund({ amount: 1 }))).status === 200);
  const made = await fleet.ask(0, 'POST', pauses, { scope: { tool: 'notes.add' }, reason: 'not now' });
  expect(made.status).toBe(201);
  const lift = () => fleet.ask(0, 'DELETE', `${pauses}/${made.body.id}`);
  const answers: number[] = [];
  const between = async (): Promise<void> => {
    answers.push((await lift()).status);
    // Nor does a gateway that starts take it for a workspace that is not there yet. (When its own key has gone, the node says so.)
    const words = ['', 'gateway', String(Date.now()), 'install', 'epoch', '', 'boot'];
    await expect(from.client.eval(script('join').source, 1, 'svc:{demo}:w', ...words)).rejects.toThrow(
      /^(?:MOVING|ASK) /,
    );
  };
  await moveSlot(slot, from, other(from), { first: ['svc:{demo}:v'], between });
  expect([...new Set(answers)]).toEqual([503]);
  // A new epoch begins at the new node, once each gateway has handed in its journal.
  await until(async () => (await fleet.ask(1, 'GET', pauses)).status === 200);
  expect((await fleet.ask(1, 'GET', pauses)).body.pauses).toMatchObject([{ id: made.body.id }]);
  await until(async () => (await lift()).status < 300);
  expect((await fleet.ask(1, 'GET', pauses)).body.pauses).toEqual([]);
  await expectSound();
});
