import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import type { TestFiles } from '../system/gateway.ts';
import { type Rig, startPair } from './rigs.ts';

/** Delay between the primary and its replica, ms. */
const REPLICATION_DELAY_MS = 20;

/** A way to a port that can be pointed elsewhere, and holds every byte back for a while. */
interface Way {
  readonly port: number;
  point(port: number): void;
  stop(): Promise<void>;
}

async function way(target: number, delayMs: number): Promise<Way> {
  const sockets = new Set<Socket>();
  let to = target;
  const server = createServer((near) => {
    const far = connect(to, '127.0.0.1');
    for (const [from, into] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined);
      from.on('close', () => {
        sockets.delete(from);
        into.destroy();
      });
      from.on('data', (bytes: Buffer) => {
        if (delayMs === 0) into.write(bytes);
        else setTimeout(() => into.destroyed || into.write(bytes), delayMs);
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    point(port) {
      to = port;
      for (const socket of sockets) socket.destroy();
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/**
 * Two gateways before a primary with a replica that hears everything 20 ms late (`durability: replica`). The primary is
 * killed and the replica takes its place; the one that was killed comes back as replica.
 */
export async function failoverRig(files: TestFiles): Promise<Rig> {
  const sync = ['--repl-diskless-sync-delay', '0', '--appendfsync', 'everysec', '--repl-timeout', '5'];
  let primary = await startRedis(sync);
  let replica = await startRedis(sync);
  const late = await way(primary.port, REPLICATION_DELAY_MS);
  const front = await way(primary.port, 0);
  const follow = async (server: RedisServer): Promise<void> => {
    await server.client.call('REPLICAOF', '127.0.0.1', String(late.port));
    await until(async () => (await server.client.info('replication')).includes('master_link_status:up'));
  };
  await follow(replica);
  const pair = await startPair(files, `url: "redis://127.0.0.1:${front.port}", durability: replica`);
  const { url } = pair.first;
  const { accountKey } = pair.keys;
  /** Whether a step that has to be durable is: a pause set and lifted goes through the same barrier as a call. */
  const writes = async (): Promise<boolean> => {
    const headers = { 'x-api-key': accountKey, 'content-type': 'application/json' };
    const pauses = `${url}/v1/workspaces/demo/pauses`;
    const body = JSON.stringify({ scope: { tool: 'nothing.at.all' }, reason: 'looks whether writes go through' });
    const set = await fetch(pauses, { method: 'POST', headers, body, signal: AbortSignal.timeout(4000) });
    if (set.status !== 201) return false;
    const made: unknown = await set.json();
    const id = typeof made === 'object' && made !== null && 'id' in made ? String(made.id) : '';
    await fetch(`${pauses}/${id}`, { method: 'DELETE', headers: { 'x-api-key': accountKey } });
    return true;
  };
  let kills = 0;
  return {
    ...pair.part,
    troubles: [
      {
        name: 'primary_kill',
        weight: 1,
        kills: 1,
        async run() {
          const killed = performance.now();
          kills += 1;
          await primary.kill();
          [primary, replica] = [replica, primary];
          await primary.client.call('REPLICAOF', 'NO', 'ONE');
          late.point(primary.port);
          front.point(primary.port);
          await replica.start();
          await follow(replica);
          await until(writes);
          return performance.now() - killed;
        },
      },
    ],
    kills: () => kills + pair.kills(),
    async dispose() {
      await pair.dispose();
      await Promise.all([late.stop(), front.stop()]);
      await Promise.all([primary.stop(), replica.stop()]);
    },
  };
}
