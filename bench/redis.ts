import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from '../src/identity/key-format.ts';
import { startRedis } from '../test/redis/servers.ts';
import { CONFIG } from './governed.ts';
import { agentKey, sideBySide } from './load.ts';
import { canPin, type Server, startServer } from './processes.ts';
import type { BenchResult } from './result.ts';
import { policyOf, type RuleSet, toolsOf } from './rules.ts';

/**
 * A governed write with the store on Redis (append-only file, synced every second), against the ungoverned proxy and
 * against what a team would assemble from libraries on the same Redis: with one rule, and with ten. The three compared
 * servers have one core each, the same; Redis, the upstream and the load have both.
 */
export async function run(): Promise<BenchResult[]> {
  return [...(await compared('one')), ...(await compared('ten'))];
}

async function compared(rules: RuleSet): Promise<BenchResult[]> {
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
    const config = CONFIG.replace(/^store:.*$/m, store).replace(/^routes:$/m, `${toolsOf(rules)}routes:`);
    await writeFile(join(folder, 'gateway.yaml'), config);
    await writeFile(join(folder, 'policies', 'bench.yaml'), policyOf(rules));
    const administrative = makeKey('administrative').key;
    await writeFile(join(folder, 'admin.key'), administrative, { mode: 0o600 });
    const file = (name: string): string => new URL(name, import.meta.url).pathname;
    const upstream = await start([file('./bench-upstream.js')]);
    const proxy = await start([file('./peer-proxy.js'), upstream.url], { pinned: true });
    const assembled = await start([file('./peer-assembled.js'), upstream.url, redis.url, rules], { pinned: true });
    const gateway = await start(
      [file('../../bin/svc.mjs'), 'start', '--config', join(folder, 'gateway.yaml'), '--port', '0'],
      {
        cwd: folder,
        env: { BENCH_UPSTREAM: upstream.url, SVC_BOOTSTRAP_ADMIN_KEY_FILE: join(folder, 'admin.key') },
        pinned: true,
      },
    );
    const key = await agentKey(gateway.url, administrative);
    const hash = createHash('sha256').update(key).digest('hex');
    await redis.client.set(`apikey:${hash}`, JSON.stringify({ agent: 'bot', team: 'support' }));
    const urls = [proxy.url, assembled.url, gateway.url];
    const [ofProxy = 0, ofAssembled = 0, ofGateway = 0] = await sideBySide(urls, key, 'POST');
    const measured = {
      name: `governed write, Redis store, ${rules} rule${rules === 'one' ? '' : 's'}, ${canPin() ? 'on one core' : 'not on one core: there is no taskset'}`,
      value: Math.round(ofGateway),
      unit: 'requests/s',
    };
    return [
      {
        ...measured,
        peer: `@fastify/http-proxy ${Math.round(ofProxy)} requests/s`,
        ratio: ofGateway / ofProxy,
        target: '>= 0.5',
      },
      {
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
