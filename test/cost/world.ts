import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { startRedis } from '../redis/servers.ts';
import { makeApiKey, startGateway } from '../system/gateway.ts';
import { lockOf } from '../system/mcp/lenient-server.ts';

export const DOORS = ['proxy', 'effects', 'mcp'] as const;
export const STORES = ['embedded', 'redis'] as const;
export type Door = (typeof DOORS)[number];
export type Store = (typeof STORES)[number];

/** What a thread answers to a command; see `probe.mjs`. */
export interface Answers<T> {
  readonly main: T;
  readonly others: readonly T[];
}

/** A request that is governed. */
export interface Write {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A gateway that is counted, before an upstream of its own. */
export interface CostWorld {
  readonly url: string;
  /** The next write at a door: one of many that differ in their keys only. */
  next(door: Door): Write;
  ask<T>(op: string): Promise<Answers<T>>;
  stop(): Promise<void>;
}

const TOOL = {
  name: 'refund',
  description: 'Refunds a payment',
  inputSchema: {
    type: 'object',
    properties: { payment: { type: 'string' }, amount: { type: 'integer', minimum: 1 } },
    required: ['payment', 'amount'],
    additionalProperties: false,
  },
} as const;

function config(upstream: string, store: string): string {
  return `
server: { host: 127.0.0.1, port: 0 }
${store}
workspaces: [ { id: demo, agents: [ { id: bot, team: support } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams:
  - { id: payments, url: "${upstream}", timeout: 10s, connections: 128 }
  - { id: tools, timeout: 10s, mcp: { url: "${upstream}/mcp", pins: tools.lock.json } }
tools:
  - name: payments.refund
    title: Refund
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/payments/{payment_id}/refunds", body: [amount, currency, reason] }
    params_schema: { type: object, required: [payment_id, amount, currency], properties: { payment_id: { type: string }, amount: { type: integer, minimum: 1 }, currency: { type: string }, reason: { type: string } }, additionalProperties: false }
    target: "payment:{payment_id}"
routes:
  - upstream: payments
    prefix: /payments
    rules: [ { match: "POST /v1/payments/:payment_id/refunds", tool: payments.refund, idempotency: required } ]
telemetry: { log_level: warn }
`;
}

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: cost
owner: team-test
lists: { currencies: [EUR, USD] }
budgets: { agent-day: { unit: EUR-cent, by: [agent.id], per: day, limit: 9007199254740991 } }
rules:
  - id: refund
    effect: allow
    match: { tools: [payments.refund], agents: { team: [support] } }
    when: { all: [ { params.amount: { gte: 1 } }, { params.amount: { lte: 50000 } }, { params.currency: { in: $currencies } } ] }
    obligations: [ { budget: { use: agent-day, amount: params.amount } } ]
  - { id: tools, effect: allow, match: { upstreams: [tools] } }
`;

async function startUpstream(): Promise<{ readonly url: string; stop(): void }> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'upstream.mjs'), JSON.stringify([TOOL])], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [url] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return { url, stop: () => void child.kill() };
}

const REFUND = { amount: 1200, currency: 'EUR', reason: 'customer asked' };

/** Starts the real gateway from `dist/` with the probe in each of its threads. */
export async function startCostWorld(store: Store): Promise<CostWorld> {
  const upstream = await startUpstream();
  const redis = store === 'redis' ? await startRedis(['--appendfsync', 'everysec']) : null;
  const of =
    redis === null
      ? 'store: { kind: embedded, path: "${SVC_TEST_DATA}" }'
      : `store: { kind: redis, url: "${redis.url}", durability: local, allow_weak_durability: true, journal: "\${SVC_TEST_DATA}/journal" }`;
  const socket = join('/tmp', `svc-cost-${process.pid}-${store}.sock`);
  const gateway = await startGateway(
    { config: config(upstream.url, of), policies: { 'cost.yaml': POLICY } },
    {
      env: {
        NODE_OPTIONS: `--import=${new URL('probe.mjs', import.meta.url).href}`,
        SVC_COST_SOCKET: socket,
      },
      entry: join(process.cwd(), 'test', 'module-a-file.mjs'),
      beside: { 'tools.lock.json': lockOf('tools', [TOOL]) },
    },
  );
  const key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
  const commands = connect(socket);
  await once(commands, 'connect');
  const answers = createInterface({ input: commands });
  let calls = 100_000;
  return {
    url: gateway.url,
    next(door) {
      calls += 1;
      return writeAt(door, key, calls);
    },
    async ask<T>(op: string) {
      commands.write(`${op}\n`);
      const [line] = (await once(answers, 'line')) as [string];
      return JSON.parse(line) as Answers<T>;
    },
    async stop() {
      commands.destroy();
      await gateway.dispose();
      upstream.stop();
      await redis?.stop();
    },
  };
}

function writeAt(door: Door, key: string, call: number): Write {
  const payment = `pay_${call}`;
  const idempotencyKey = `cost-${call}`;
  switch (door) {
    case 'proxy':
      return {
        path: `/payments/v1/payments/${payment}/refunds`,
        headers: { 'x-api-key': key, 'idempotency-key': idempotencyKey },
        body: JSON.stringify(REFUND),
      };
    case 'effects': {
      const params = { payment_id: payment, ...REFUND };
      const effect = { action_type: 'mcp.tool_call', tool: 'payments.refund', params, idempotency_key: idempotencyKey };
      return { path: '/v1/workspaces/demo/effects', headers: { 'x-api-key': key }, body: JSON.stringify(effect) };
    }
    case 'mcp': {
      const params = { name: TOOL.name, arguments: { payment, amount: 1200 } };
      return {
        path: '/mcp/tools',
        headers: { 'x-api-key': key, accept: 'application/json, text/event-stream' },
        body: JSON.stringify({ jsonrpc: '2.0', id: call, method: 'tools/call', params }),
      };
    }
  }
}
