import { spawn, type ChildProcess, execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startRelay } from './relay.ts';

/** A running server of a test's own: on loopback, with a folder of its own. */
export interface RedisServer {
  readonly port: number;
  readonly folder: string;
  /** `host:port` */
  readonly address: string;
  readonly url: string;
  /** A plain client, closed with the server. */
  readonly client: Redis;
  readonly pid: number;
  signal(name: 'SIGSTOP' | 'SIGCONT' | 'SIGKILL'): void;
  /** Kills it and starts it again on the same port and data. */
  restart(prepare?: () => void): Promise<void>;
  /** Kills it. */
  kill(): Promise<void>;
  /** Starts it again after {@link kill}. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

const APT = '/usr/bin/apt-get';

/** Where fsync costs nothing: what the tests show does not depend on the medium. */
const MEMORY = '/dev/shm';

let binary: string | null = null;

/** Servers of a test that failed before it stopped them end with its process. */
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

function spawnServer(words: readonly string[], environment: Readonly<Record<string, string>> = {}): ChildProcess {
  const child = spawn(redisServerBinary(), words, { stdio: 'ignore', env: { ...process.env, ...environment } });
  running.add(child);
  child.once('exit', () => running.delete(child));
  return child;
}

/** `REDIS_SERVER`, the one on the PATH, or, for root on Debian, installed. */
export function redisServerBinary(): string {
  binary ??= find();
  return binary;
}

function find(): string {
  const named = process.env['REDIS_SERVER'];
  if (named !== undefined && named !== '') return named;
  const onPath = (process.env['PATH'] ?? '').split(':').map((folder) => join(folder, 'redis-server'));
  const found = onPath.find((path) => existsSync(path));
  if (found !== undefined) return found;
  if (process.getuid?.() !== 0 || !existsSync(APT)) {
    throw new Error('redis-server 7.0 or later is needed: install it, or name it in REDIS_SERVER');
  }
  const environment = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const options = { env: environment, stdio: 'ignore' } as const;
  execFileSync(APT, ['update', '-qq'], options);
  execFileSync(APT, ['install', '-y', '-qq', '--no-install-recommends', 'redis-tools', 'redis-server'], options);
  return '/usr/bin/redis-server';
}

/** A port nobody listens on. With `offset`, the port that far above is free as well (a cluster's bus). */
export async function freePort(offset = 0): Promise<number> {
  for (;;) {
    const port = await listenOnce(0);
    if (offset === 0) return port;
    if (port + offset < 65_536 && (await listenOnce(port + offset).catch(() => 0)) !== 0) return port;
  }
}

function listenOnce(port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => {
      const address = server.address();
      const bound = typeof address === 'object' && address !== null ? address.port : 0;
      server.close(() => resolve(bound));
    });
  });
}

/** Starts a server. `settings` are further words of its command line. */
export async function startRedis(
  settings: readonly string[] = [],
  clusterNode = false,
  environment: Readonly<Record<string, string>> = {},
): Promise<RedisServer> {
  const folder = mkdtempSync(join(existsSync(MEMORY) ? MEMORY : tmpdir(), 'svc-redis-'));
  const port = await freePort(clusterNode ? 10_000 : 0);
  let child: ChildProcess;
  const client = new Redis({
    host: '127.0.0.1',
    port,
    lazyConnect: true,
    retryStrategy: (times) => Math.min(times * 20, 200),
    maxRetriesPerRequest: null,
  });
  client.on('error', () => undefined);

  async function start(): Promise<void> {
    const words = ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--daemonize', 'no'];
    const durable = ['--appendonly', 'yes', '--appendfsync', 'always', '--repl-diskless-sync-delay', '0'];
    child = spawnServer([...words, ...durable, ...settings], environment);
    await client.connect().catch(() => undefined);
    await until(async () => (await client.ping()) === 'PONG');
  }

  async function kill(): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
  }

  await start();
  return {
    port,
    folder,
    address: `127.0.0.1:${port}`,
    url: `redis://127.0.0.1:${port}`,
    client,
    get pid() {
      return child.pid ?? 0;
    },
    signal: (name) => void child.kill(name),
    async restart(prepare) {
      await kill();
      prepare?.();
      await start();
    },
    kill,
    start,
    async stop() {
      client.disconnect();
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A way to a server that can be cut, as a network is. */
export interface RedisRoute {
  readonly url: string;
  cut(): void;
  heal(): void;
  /** Leads to another server from now on, as after a fail-over. */
  point(to: RedisServer): void;
  stop(): Promise<void>;
}

export async function routeTo(server: RedisServer): Promise<RedisRoute> {
  let whole = true;
  let target = server;
  const relay = await startRelay(
    () => (whole ? target.port : null),
    (near, far) => void near.pipe(far).pipe(near),
  );
  function cut(): void {
    whole = false;
    relay.cut();
  }
  return {
    url: `redis://127.0.0.1:${relay.port}`,
    cut,
    heal() {
      whole = true;
    },
    point(to) {
      cut();
      target = to;
      whole = true;
    },
    stop() {
      cut();
      return relay.stop();
    },
  };
}

/** As docs/operating/redis.md advises: a primary that does not answer for this long is down, ms. */
const SENTINEL_DOWN_AFTER_MS = 1000;

/** Sentinels that watch a primary under the name `svc`; most of them have to agree that it is down. */
export async function startSentinels(
  primary: RedisServer,
  count = 1,
): Promise<{
  readonly addresses: readonly string[];
  /** Freezes one: it takes connections and answers nothing. */
  freeze(index: number): void;
  stop(): Promise<void>;
}> {
  const quorum = Math.floor(count / 2) + 1;
  const sentinels = await Promise.all(Array.from({ length: count }, () => startSentinel(primary, quorum)));
  for (const { client } of sentinels) {
    // Each has to know the others, or none is elected to lead a fail-over.
    await until(async () => {
      const others = await client.call('SENTINEL', 'SENTINELS', 'svc');
      return Array.isArray(others) && others.length === count - 1;
    });
  }
  return {
    addresses: sentinels.map(({ address }) => address),
    freeze: (index) => void sentinels[index]?.child.kill('SIGSTOP'),
    async stop() {
      await Promise.all(sentinels.map((sentinel) => sentinel.stop()));
    },
  };
}

async function startSentinel(primary: RedisServer, quorum: number) {
  const folder = mkdtempSync(join(tmpdir(), 'svc-sentinel-'));
  const port = await freePort();
  const path = join(folder, 'sentinel.conf');
  writeFileSync(
    path,
    [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${folder}`,
      `sentinel monitor svc 127.0.0.1 ${primary.port} ${quorum}`,
      `sentinel down-after-milliseconds svc ${SENTINEL_DOWN_AFTER_MS}`,
      'sentinel failover-timeout svc 3000',
      '',
    ].join('\n'),
  );
  const child = spawnServer([path, '--sentinel']);
  const client = new Redis({ host: '127.0.0.1', port, retryStrategy: () => 50, maxRetriesPerRequest: null });
  client.on('error', () => undefined);
  await until(async () => String(await client.call('SENTINEL', 'REPLICAS', 'svc')).includes('slave'));
  return {
    address: `127.0.0.1:${port}`,
    client,
    child,
    async stop() {
      client.disconnect();
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await gone;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export interface RedisCluster {
  /** Its first primaries. */
  readonly nodes: readonly RedisServer[];
  readonly replicas: readonly RedisServer[];
  /** Which of {@link nodes} had the slot of a key at first. */
  primaryOf(key: string): Promise<RedisServer>;
  /** Kills one, of which the others say soon that it is lost; on a busy machine they would say so of others before. */
  kill(node: RedisServer): Promise<void>;
  stop(): Promise<void>;
}

/** As docs/operating/redis.md advises, ms. */
const CLUSTER_NODE_TIMEOUT_MS = 2_000;

/** First slot of each of three primaries, and the end. */
const EDGES = [0, 5461, 10_923, 16_384] as const;

/** A cluster of three primaries, each with so many replicas. */
export async function startCluster(replicas = 0): Promise<RedisCluster> {
  const settings = [
    ['--cluster-enabled', 'yes', '--cluster-node-timeout', '15000'],
    // As docs/operating/redis.md advises: slots whose primary is lost do not take the others with them.
    ['--cluster-require-full-coverage', 'no'],
    // A replica stays where a test has put it.
    ['--cluster-allow-replica-migration', 'no'],
  ].flat();
  const start = (): Promise<RedisServer> => startRedis(settings, true);
  const [nodes, others] = await Promise.all([
    Promise.all([0, 1, 2].map(start)),
    Promise.all(Array.from({ length: 3 * replicas }, start)),
  ]);
  const [first] = nodes;
  if (first === undefined) throw new Error('a cluster has nodes');
  for (const [index, node] of nodes.entries()) {
    await node.client.call('CLUSTER', 'ADDSLOTSRANGE', EDGES[index] ?? 0, (EDGES[index + 1] ?? 0) - 1);
  }
  // Whoever is met by all is known by all at once; gossip alone takes seconds.
  for (const node of [...nodes, ...others]) {
    for (const other of [...nodes, ...others])
      if (node !== other) await node.client.call('CLUSTER', 'MEET', '127.0.0.1', other.port);
  }
  for (const node of [...nodes, ...others]) {
    await until(async () => {
      const info = String(await node.client.call('CLUSTER', 'INFO'));
      return info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${nodes.length + others.length}`);
    });
  }
  await Promise.all(
    others.map(async (replica, index) => {
      const id = String(await nodes[index % 3]?.client.call('CLUSTER', 'MYID'));
      await until(async () => (await replica.client.call('CLUSTER', 'REPLICATE', id)) === 'OK');
      await until(async () => (await replica.client.info('replication')).includes('master_link_status:up'));
    }),
  );
  async function primaryOf(key: string): Promise<RedisServer> {
    const slot = Number(await first?.client.call('CLUSTER', 'KEYSLOT', key));
    const node = nodes[EDGES.findIndex((edge) => slot < edge) - 1];
    if (node === undefined) throw new Error(`slot ${slot} is nobody's`);
    return node;
  }
  const waitedFor = new Set<RedisServer>();
  for (let n = 0; replicas > 0 && waitedFor.size < nodes.length; n += 1) {
    const node = await primaryOf(`first-${n}`);
    if (!waitedFor.has(node)) await confirming(node, replicas, `first-${n}`);
    waitedFor.add(node);
  }
  return {
    nodes,
    replicas: others,
    primaryOf,
    async kill(node) {
      for (const { client } of [...nodes, ...others])
        await client.config('SET', 'cluster-node-timeout', CLUSTER_NODE_TIMEOUT_MS);
      await node.kill();
    },
    async stop() {
      await Promise.all([...nodes, ...others].map((node) => node.stop()));
    },
  };
}

/**
 * Moves a slot with all its keys to another primary, as `redis-cli --cluster reshard` does, some keys at a time.
 * @param first these keys go before the others
 * @param between called after each part, while some keys are still at one node and some are at the other
 */
export async function moveSlot(
  slot: number,
  from: RedisServer,
  to: RedisServer,
  { first = [], between }: { readonly first?: readonly string[]; readonly between: () => Promise<unknown> },
): Promise<void> {
  const [fromId, toId] = await Promise.all(
    [from, to].map(async ({ client }) => String(await client.call('CLUSTER', 'MYID'))),
  );
  await to.client.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', fromId ?? '');
  await from.client.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', toId ?? '');
  for (let keys = first; ; ) {
    if (keys.length === 0) keys = (await from.client.call('CLUSTER', 'GETKEYSINSLOT', slot, 20)) as string[];
    if (keys.length === 0) break;
    await from.client.call('MIGRATE', '127.0.0.1', to.port, '', 0, 5000, 'KEYS', ...keys);
    await between();
    keys = [];
  }
  for (const { client } of [to, from]) await client.call('CLUSTER', 'SETSLOT', slot, 'NODE', toId ?? '');
}

/** A replica that is online confirms nothing before its first round, which may be a second later. */
async function confirming({ client }: RedisServer, replicas: number, key: string): Promise<void> {
  await until(async () => {
    await client.set(key, 'write');
    await client.del(key);
    return (await client.wait(replicas, 1000)) === replicas;
  });
}

/** A primary and its replicas, in step. */
export async function startReplicated(replicas: number, settings: readonly string[] = []) {
  const primary = await startRedis(settings);
  const following = ['--replicaof', '127.0.0.1', String(primary.port)];
  const others = await Promise.all(Array.from({ length: replicas }, () => startRedis([...settings, ...following])));
  await until(async () => {
    const info = await primary.client.info('replication');
    return [...info.matchAll(/state=online/g)].length === replicas;
  });
  await confirming(primary, replicas, 'first');
  return {
    primary,
    replicas: others,
    async stop() {
      await Promise.all([primary, ...others].map((server) => server.stop()));
    },
  };
}

/** Waits for a condition. @throws when it does not come within `withinMs` */
export async function until(condition: () => Promise<boolean> | boolean, withinMs = 40_000): Promise<void> {
  const deadline = performance.now() + withinMs;
  let pauseMs = 10;
  for (;;) {
    try {
      if (await condition()) return;
    } catch (error) {
      if (performance.now() > deadline) throw error;
    }
    if (performance.now() > deadline) throw new Error('what was waited for did not come');
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    // Who asks all the time takes the machine from those that are waited for.
    pauseMs = Math.min(50, pauseMs * 1.2);
  }
}
