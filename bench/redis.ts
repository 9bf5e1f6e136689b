import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from '../src/identity/key-format.ts';
import { startRedis } from '../test/redis/servers.ts';
import { CONFIG, POLICY } from './governed.ts';
import { agentKey, sideBySide } from './load.ts';
import { type Server, startServer } from './processes.ts';
import type { BenchResult } from './result.ts';

/**
 * A governed write with the store on Redis (append-only file, synced every second), against the ungoverned proxy and
 * against what a team would assemble from libraries on the same Redis. Each is one process whose work is on one thread.
 */
export async function run(): Promise<BenchResult[]> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-bench-redis-'));
  const redis = await startRedis(['--appendfsync', 'everysec']);
  const servers: Server[] = [];
  const start = async (...started: Parameters<typeof startServer>): Promise<Server> => {
    const server = await startServer(...started);
    servers.push(server);
    return server;
  };
  try {
    await mkdir(join(folder, 'policies'));
    const store = `store: { kind: redis, url: "${redis.url}", durability: local, allow_weak_durability: true, journal: ./data/journal }`;
    await writeFile(join(folder, 'gateway.yaml'), CONFIG.replace(/^store:.*$/m, store));
    await writeFile(join(folder, 'policies', 'bench.yaml'), POLICY);
    const administrative = makeKey('administrative').key;
    await writeFile(join(folder, 'admin.key'), administrative, { mode: 0o600 });
    const file = (name: string): string => new URL(name, import.meta.url).pathname;
    const upstream = await start([file('./bench-upstream.js')]);
    const proxy = await start([file('./peer-proxy.js'), upstream.url]);
    const assembled = await start([file('./peer-assembled.js'), upstream.url, redis.url]);
    const gateway = await start(
      [file('../../bin/svc.mjs'), 'start', '--config', join(folder, 'gateway.yaml'), '--port', '0'],
      {
        cwd: folder,
        env: { BENCH_UPSTREAM: upstream.url, SVC_BOOTSTRAP_ADMIN_KEY_FILE: join(folder, 'admin.key') },
      },
    );
    const key = await agentKey(gateway.url, administrative);
    const urls = [proxy.url, assembled.url, gateway.url];
    const [ofProxy = 0, ofAssembled = 0, ofGateway = 0] = await sideBySide(urls, key, 'POST');
    const measured = { value: Math.round(ofGateway), unit: 'requests/s' };
    return [
      {
        name: 'governed write, Redis store',
        ...measured,
        peer: `@fastify/http-proxy ${Math.round(ofProxy)} requests/s`,
        ratio: ofGateway / ofProxy,
        target: '>= 0.5',
      },
      {
        name: 'governed write, Redis store',
        ...measured,
        peer: `fastify, json-rules-engine, @node-idempotency, rate-limiter-flexible ${Math.round(ofAssembled)} requests/s`,
        ratio: ofGateway / ofAssembled,
        target: '>= 1.7',
      },
    ];
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    await redis.stop();
    await rm(folder, { recursive: true, force: true });
  }
}
