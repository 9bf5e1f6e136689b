import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { Profiler } from 'node:inspector';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from '../src/identity/key-format.ts';
import { type RedisServer, startRedis } from '../test/redis/servers.ts';
import { lockOf } from '../test/system/mcp/lenient-server.ts';
import { type CpuTimes, hasThreadTimes, keepOn, threadTimes } from './cpu.ts';
import { type Server, type ServerOptions, startServer } from './processes.ts';
import { MCP_CONFIG, MCP_POLICY, MCP_TOOLS, mcpUpstreamOf } from './mcp-tools.ts';
import { policyOf, type RuleSet, toolsOf } from './rules.ts';

/** A server that is measured, with the stores' servers that work for it. */
export interface Measured {
  /** As figures name it. */
  readonly name: string;
  readonly url: string;
  /** The agent's key. */
  readonly key: string;
  /** What it and its store have used, by process and thread. */
  cpu(): Promise<CpuTimes>;
}

/** A gateway with a store of its own, which outlives it. */
export interface Gateway extends Measured {
  readonly folder: string;
  /** See {@link Server.profile}. */
  profile(work: () => Promise<unknown>): Promise<Profiler.Profile | null>;
  /** See {@link Server.residentBytes}. */
  residentBytes(): number | null;
  /** Stops it and starts it again on its store. */
  restart(meanwhile?: () => Promise<void>): Promise<void>;
  stop(): Promise<void>;
}

export interface GatewayOptions {
  readonly name: string;
  /** Without it the store is the embedded one. */
  readonly redis?: RedisServer;
  readonly rules?: RuleSet;
  /** `first`: all of its threads on one core. */
  readonly place?: 'served' | 'first';
}

/** The upstream, and what stands before it. All ends with the stage. */
export interface Stage {
  readonly upstream: Server;
  gateway(options: GatewayOptions): Promise<Gateway>;
  redis(settings?: readonly string[]): Promise<RedisServer>;
  /** The plain, ungoverned `@fastify/http-proxy`. */
  proxy(place?: 'served' | 'first'): Promise<Measured>;
  /** What a gateway with these promises cannot leave out, and nothing else. */
  floor(): Promise<Measured>;
  /** What a team would assemble from libraries on a Redis. */
  assembled(redis: RedisServer, rules: RuleSet): Promise<Measured>;
  stop(): Promise<void>;
}

const AGENT_KEY = makeKey('agent').key;

/**
 * Starts the upstream; this process, which makes the load, moves to the load's core until the stage ends.
 * @param kind what the upstream is
 */
export async function openStage(kind: 'http' | 'mcp' = 'http'): Promise<Stage> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-bench-'));
  const running = new Map<string, Server>();
  const redisServers: RedisServer[] = [];
  keepOn('load', process.pid, 'process');

  async function start(name: string, args: readonly string[], options: ServerOptions): Promise<Server> {
    const server = await startServer(args, options);
    running.set(name, server);
    return server;
  }
  const upstream = await start(
    'upstream',
    [fileBeside(kind === 'http' ? './bench-upstream.js' : './mcp-upstream.js')],
    { place: 'upstream' },
  );

  return {
    upstream,
    async gateway({ name, redis, rules = 'one', place = 'served' }) {
      const home = join(folder, name.replaceAll(' ', '-'));
      await mkdir(join(home, 'policies'), { recursive: true });
      const tools =
        rules === 'mixed' ? await start('tools', [fileBeside('./mcp-upstream.js')], { place: 'upstream' }) : null;
      if (kind === 'mcp' || tools !== null) await writeFile(join(home, 'tools.lock.json'), lockOf('tools', MCP_TOOLS));
      if (kind === 'mcp') {
        await writeFile(join(home, 'gateway.yaml'), MCP_CONFIG);
        await writeFile(join(home, 'policies', 'bench.yaml'), MCP_POLICY);
      } else {
        await writeFile(join(home, 'gateway.yaml'), configOf(redis, rules, tools));
        await writeFile(join(home, 'policies', 'bench.yaml'), policyOf(rules));
      }
      const administrative = makeKey('administrative').key;
      await writeFile(join(home, 'admin.key'), administrative, { mode: 0o600 });
      const args = [
        fileBeside('../../test/module-a-file.mjs'),
        'start',
        '--config',
        join(home, 'gateway.yaml'),
        '--port',
        '0',
      ];
      const env = { BENCH_UPSTREAM: upstream.url, SVC_BOOTSTRAP_ADMIN_KEY_FILE: join(home, 'admin.key') };
      const begin = (): Promise<Server> => start(name, args, { cwd: home, env, place });
      let server = await begin();
      const key = await agentKey(server.url, administrative);
      return {
        name,
        folder: home,
        key,
        get url() {
          return server.url;
        },
        async cpu() {
          const own = labelled(name, await server.cpu());
          return redis === undefined ? own : new Map([...own, ...labelled('redis-server', await redisTimes(redis))]);
        },
        profile: (work) => server.profile(work),
        residentBytes: () => server.residentBytes(),
        async restart(meanwhile) {
          await server.stop();
          await meanwhile?.();
          server = await begin();
        },
        async stop() {
          running.delete(name);
          await server.stop();
        },
      };
    },
    async redis(settings = []) {
      const redis = await startRedis(['--appendfsync', 'everysec', ...settings]);
      redisServers.push(redis);
      keepOn('beside', redis.pid, 'process');
      return redis;
    },
    async proxy(place = 'served') {
      const proxy = await start(
        'proxy',
        [fileBeside('./peer-proxy.js'), upstream.url, kind === 'http' ? '/payments' : '/mcp'],
        { place },
      );
      return measured('proxy', proxy, AGENT_KEY, null);
    },
    async floor() {
      const floor = await start('floor', [fileBeside('./peer-floor.js'), upstream.url], { place: 'served' });
      return measured('floor', floor, AGENT_KEY, null);
    },
    async assembled(redis, rules) {
      const args = [fileBeside('./peer-assembled.js'), upstream.url, redis.url, rules];
      const peer = await start('assembled', args, { place: 'first' });
      const hash = createHash('sha256').update(AGENT_KEY).digest('hex');
      await redis.client.set(`apikey:${hash}`, JSON.stringify({ agent: 'bot', team: 'support' }));
      return measured('assembled', peer, AGENT_KEY, redis);
    },
    async stop() {
      await Promise.all([...running.values()].map((server) => server.stop()));
      await Promise.all(redisServers.map((redis) => redis.stop()));
      await rm(folder, { recursive: true, force: true });
      keepOn('whole machine', process.pid, 'process');
    },
  };
}

function measured(name: string, server: Server, key: string, redis: RedisServer | null): Measured {
  return {
    name,
    url: server.url,
    key,
    async cpu() {
      const own = labelled(name, await server.cpu());
      return redis === null ? own : new Map([...own, ...labelled('redis-server', await redisTimes(redis))]);
    },
  };
}

function labelled(who: string, times: CpuTimes): CpuTimes {
  return new Map([...times].map(([thread, micros]) => [`${who} ${thread}`, micros]));
}

async function redisTimes(redis: RedisServer): Promise<CpuTimes> {
  if (hasThreadTimes()) return threadTimes(redis.pid, new Map());
  const info = await redis.client.info('cpu');
  const seconds = (name: string): number => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)?.[1] ?? 0);
  return new Map([['all threads', 1e6 * (seconds('used_cpu_user') + seconds('used_cpu_sys'))]]);
}

function fileBeside(name: string): string {
  return new URL(name, import.meta.url).pathname;
}

async function agentKey(url: string, administrative: string): Promise<string> {
  const response = await fetch(`${url}/v1/beta/users/bench/keys`, {
    method: 'POST',
    headers: { 'x-api-key': administrative, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'bench', kind: 'agent', workspace: 'bench', agent_id: 'bot' }),
  });
  const body: unknown = await response.json();
  if (typeof body === 'object' && body !== null && 'key' in body && typeof body.key === 'string') return body.key;
  throw new Error(`no key: ${JSON.stringify(body)}`);
}

/** @param tools a server of MCP tools beside the HTTP APIs */
function configOf(redis: RedisServer | undefined, rules: RuleSet, tools: Server | null): string {
  const store =
    redis === undefined
      ? 'store: { kind: embedded, path: ./data }'
      : `store: { kind: redis, url: "${redis.url}", durability: local, allow_weak_durability: true, journal: ./data/journal }`;
  return `
server: { host: 127.0.0.1, port: 0 }
${store}
workspaces: [ { id: bench, agents: [ { id: bot, team: support } ] } ]
policies: { paths: [./policies] }
upstreams:
  - { id: payments, url: "\${BENCH_UPSTREAM}", timeout: 10s, connections: 128 }
  - { id: models, url: "\${BENCH_UPSTREAM}", timeout: 10s, connections: 2000 }
${tools === null ? '' : mcpUpstreamOf(tools.url)}tools:
  - name: payments.refund
    title: Refund
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/payments/{payment_id}/refunds", body: [amount, currency, reason] }
    params_schema: { type: object, required: [payment_id, amount, currency], properties: { payment_id: { type: string }, amount: { type: integer, minimum: 1 }, currency: { type: string }, reason: { type: string } }, additionalProperties: false }
    target: "payment:{payment_id}"
  - { name: payments.get, title: Get, upstream: payments, kind: read, request: { method: GET, path: "/v1/payments/{payment_id}" }, params_schema: { type: object, required: [payment_id], properties: { payment_id: { type: string } }, additionalProperties: false } }
  - name: payments.refund_form
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/payments/{payment_id}/refunds", body: [amount, currency, reason], body_type: form }
    params_schema: { type: object, required: [payment_id, amount, currency], properties: { payment_id: { type: string }, amount: { type: integer, minimum: 1 }, currency: { type: string }, reason: { type: string } }, additionalProperties: false }
    target: "payment:{payment_id}"
  - { name: models.chat, upstream: models, kind: write, request: { method: POST, path: "/v1/streams", body: "*" }, response: stream }
  - { name: models.file, upstream: models, kind: write, request: { method: POST, path: /v1/files, body: "*", body_type: multipart } }
  - { name: models.chat_open, upstream: models, kind: write, request: { method: POST, path: "/v1/streams/open", body: "*" }, response: stream }
${toolsOf(rules)}routes:
  - upstream: models
    prefix: /models
    rules:
      - { match: "POST /v1/streams", tool: models.chat, idempotency: none }
      - { match: "POST /v1/streams/open", tool: models.chat_open, idempotency: none }
      - { match: "POST /v1/files", tool: models.file, idempotency: none }
  - upstream: payments
    prefix: /forms
    rules: [{ match: "POST /v1/payments/:payment_id/refunds", tool: payments.refund_form, idempotency: required }]
  - upstream: payments
    prefix: /payments
    rules:
      - { match: "POST /v1/payments/:payment_id/refunds", tool: payments.refund, idempotency: required }
      - { match: "GET /v1/payments/:payment_id", tool: payments.get }
telemetry: { log_level: warn }
`;
}
