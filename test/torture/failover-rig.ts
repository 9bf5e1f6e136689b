import { awakeMs } from '../awake-clock.ts';
import { handOn, startRelay } from '../redis/relay.ts';
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
  let to = target;
  const relay = await startRelay(
    () => to,
    (near, far) => {
      handOn(near, far, () => delayMs);
      handOn(far, near, () => delayMs);
    },
  );
  return {
    port: relay.port,
    point(port) {
      to = port;
      relay.cut();
    },
    stop: relay.stop,
  };
}

/**
 * Two gateways before a primary with two replicas that hear everything 20 ms late (`durability: replica`). The primary
 * is killed, and the replica that has heard most takes its place, as Sentinel would have it; the one that was killed
 * comes back as replica.
 */
export async function failoverRig(files: TestFiles): Promise<Rig> {
  const plain = ['--repl-diskless-sync-delay', '0', '--appendfsync', 'everysec', '--repl-timeout', '5'];
  // So that the other replica goes on from where it stands, and need not be filled anew.
  const sync = [...plain, '--repl-backlog-size', '64mb'];
  let primary = await startRedis(sync);
  let replicas: readonly RedisServer[] = [await startRedis(sync), await startRedis(sync)];
  const late = await way(primary.port, REPLICATION_DELAY_MS);
  const front = await way(primary.port, 0);
  const inStep = (server: RedisServer): Promise<void> =>
    until(async () => (await server.client.info('replication')).includes('master_link_status:up'));
  const follow = async (server: RedisServer): Promise<void> => {
    await server.client.call('REPLICAOF', '127.0.0.1', String(late.port));
    await inStep(server);
  };
  const heard = async (server: RedisServer): Promise<number> =>
    Number(/slave_repl_offset:(\d+)/.exec(await server.client.info('replication'))?.[1] ?? 0);
  await Promise.all(replicas.map(follow));
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
          const since = awakeMs();
          kills += 1;
          const killed = primary;
          await killed.kill();
          // What it had still under way to them is lost: neither hears more than the other from here on.
          late.point(killed.port);
          const offsets = await Promise.all(replicas.map(heard));
          const chosen = replicas[offsets.indexOf(Math.max(...offsets))] ?? killed;
          const others = replicas.filter((replica) => replica !== chosen);
          await chosen.client.call('REPLICAOF', 'NO', 'ONE');
          late.point(chosen.port);
          front.point(chosen.port);
          const back = killed.start().then(() => follow(killed));
          primary = chosen;
          replicas = [...others, killed];
          await until(writes);
          const pauseMs = awakeMs() - since;
          await Promise.all([back, ...others.map(inStep)]);
          return pauseMs;
        },
      },
    ],
    kills: () => kills + pair.kills(),
    async dispose() {
      await pair.dispose();
      await Promise.all([late.stop(), front.stop()]);
      await Promise.all([primary, ...replicas].map((server) => server.stop()));
    },
  };
}
