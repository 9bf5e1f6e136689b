import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import { onRedis } from '../system/fleet.ts';
import { makeApiKey, startGateway, type TestFiles, type TestGateway } from '../system/gateway.ts';

/** What stands between the clients and the upstream, and can be broken. */
export interface Rig {
  /** Where a client sends a call, by chance where there are several gateways. */
  url(random: () => number): string;
  readonly agentKey: string;
  /** `null`: there are no records to look at, only answers. */
  readonly accountKey: string | null;
  /** Breaks something once, and mends it. @returns for how long nothing could be written, ms, where that is measured */
  disturb(random: () => number): Promise<number | null>;
  dispose(): Promise<void>;
}

/** The longest that a gateway is frozen, ms; the fleet is told of it (`max_freeze`). */
const FREEZE_MS = 2500;

/** Delay between the primary and its replica, ms. */
const REPLICATION_DELAY_MS = 20;

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

async function keysOf(gateway: TestGateway): Promise<{ readonly agentKey: string; readonly accountKey: string }> {
  return {
    agentKey: await makeApiKey(gateway, 'tess', { kind: 'agent', workspace: 'demo', agent_id: 'bot' }),
    accountKey: await makeApiKey(gateway, 'tess', { kind: 'account', workspace: 'demo' }),
  };
}

/** One gateway on its embedded store, killed at random. */
export async function embeddedRig(files: TestFiles): Promise<Rig> {
  let gateway = await startGateway(files);
  return {
    url: () => gateway.url,
    ...(await keysOf(gateway)),
    async disturb() {
      gateway.kill('SIGKILL');
      gateway = await gateway.restart();
      return null;
    },
    dispose: () => gateway.dispose(),
  };
}

interface Gateways {
  readonly all: TestGateway[];
  readonly keys: { readonly agentKey: string; readonly accountKey: string };
  kill(index: number): Promise<void>;
  freeze(index: number, ms: number): Promise<void>;
  dispose(): Promise<void>;
}

async function twoGateways(files: TestFiles, store: string): Promise<Gateways> {
  const shared = await mkdtemp(join(tmpdir(), 'svc-torture-keys-'));
  const config = onRedis(files, `${store}, max_freeze: ${FREEZE_MS + 500}ms`);
  const all: TestGateway[] = [];
  for (let n = 0; n < 2; n += 1) all.push(await startGateway(config, { env: { SVC_TEST_SHARED: shared } }));
  const at = (index: number): TestGateway => {
    const gateway = all[index];
    if (gateway === undefined) throw new Error(`there is no gateway ${index}`);
    return gateway;
  };
  return {
    all,
    keys: await keysOf(at(0)),
    async kill(index) {
      at(index).kill('SIGKILL');
      all[index] = await at(index).restart();
    },
    async freeze(index, ms) {
      at(index).kill('SIGSTOP');
      await pause(ms);
      at(index).kill('SIGCONT');
    },
    async dispose() {
      await Promise.all(all.map((gateway) => gateway.dispose()));
      await rm(shared, { recursive: true, force: true });
    },
  };
}

function oneOf(all: readonly TestGateway[], random: () => number): string {
  return all[Math.floor(random() * all.length)]?.url ?? '';
}

/** Two gateways before one Redis with an append-only file: gateways are killed and frozen, Redis is killed. */
export async function redisRig(files: TestFiles): Promise<Rig> {
  const redis = await startRedis();
  const gateways = await twoGateways(files, `url: "${redis.url}"`);
  return {
    url: (random) => oneOf(gateways.all, random),
    ...gateways.keys,
    async disturb(random) {
      const [what, which, long] = [random(), random() < 0.5 ? 0 : 1, random()];
      if (what < 0.6) await gateways.kill(which);
      else if (what < 0.75) await gateways.freeze(which, long * FREEZE_MS);
      else await redis.restart();
      return null;
    },
    async dispose() {
      await gateways.dispose();
      await redis.stop();
    },
  };
}

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
 * Two gateways before a primary with a replica that hears everything 20 ms late (`durability: replica`). A disturbance
 * kills the primary and lets the replica take its place; the one that was killed comes back as replica.
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
  const gateways = await twoGateways(files, `url: "redis://127.0.0.1:${front.port}", durability: replica`);
  const url = gateways.all[0]?.url ?? '';
  /** Whether a step that has to be durable is: a pause set and lifted goes through the same barrier as a call. */
  const writes = async (): Promise<boolean> => {
    const headers = { 'x-api-key': gateways.keys.accountKey, 'content-type': 'application/json' };
    const pauses = `${url}/v1/workspaces/demo/pauses`;
    const body = JSON.stringify({ scope: { tool: 'nothing.at.all' }, reason: 'looks whether writes go through' });
    const set = await fetch(pauses, { method: 'POST', headers, body, signal: AbortSignal.timeout(4000) });
    if (set.status !== 201) return false;
    const made: unknown = await set.json();
    const id = typeof made === 'object' && made !== null && 'id' in made ? String(made.id) : '';
    await fetch(`${pauses}/${id}`, { method: 'DELETE', headers: { 'x-api-key': gateways.keys.accountKey } });
    return true;
  };
  return {
    url: (random) => oneOf(gateways.all, random),
    ...gateways.keys,
    async disturb() {
      const killed = performance.now();
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
    async dispose() {
      await gateways.dispose();
      await Promise.all([late.stop(), front.stop()]);
      await Promise.all([primary.stop(), replica.stop()]);
    },
  };
}

/** A gateway built around an idempotency library, with its keys in Redis; killed at random. */
export async function peerRig(library: string, upstreamUrl: string): Promise<Rig> {
  const redis = await startRedis();
  const entry = join(process.cwd(), 'test', 'torture', 'peer-gateway.mjs');
  const start = async (port: string) => {
    const words = ['--library', library, '--upstream', upstreamUrl, '--redis', redis.url, '--port', port];
    const child = spawn(process.execPath, [entry, ...words], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = await once(createInterface({ input: child.stdout }), 'line');
    const { url } = JSON.parse(String(line)) as { readonly url: string };
    return { url, child };
  };
  let peer = await start('0');
  const kill = async (): Promise<void> => {
    const gone = once(peer.child, 'exit');
    peer.child.kill('SIGKILL');
    await gone;
  };
  return {
    url: () => peer.url,
    agentKey: 'none',
    accountKey: null,
    async disturb() {
      await kill();
      peer = await start(new URL(peer.url).port);
      return null;
    },
    async dispose() {
      await kill();
      await redis.stop();
    },
  };
}
