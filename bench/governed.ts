import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import autocannon from 'autocannon';
import { makeKey } from '../src/identity/key-format.ts';
import { type Server, startServer } from './processes.ts';
import type { BenchResult } from './result.ts';

const ROUNDS = 5;
const SECONDS = 4;
const CONNECTIONS = 64;

const CONFIG = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: ./data }
workspaces: [ { id: bench, agents: [ { id: bot, team: support } ] } ]
policies: { paths: [./policies] }
upstreams: [ { id: payments, url: "\${BENCH_UPSTREAM}", timeout: 10s, connections: 128 } ]
tools:
  - name: payments.refund
    title: Refund
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/payments/{payment_id}/refunds", body: [amount, currency, reason] }
    params_schema: { type: object, required: [payment_id, amount, currency], properties: { payment_id: { type: string }, amount: { type: integer, minimum: 1 }, currency: { type: string }, reason: { type: string } }, additionalProperties: false }
    target: "payment:{payment_id}"
  - { name: payments.get, title: Get, upstream: payments, kind: read, request: { method: GET, path: "/v1/payments/{payment_id}" }, params_schema: { type: object, required: [payment_id], properties: { payment_id: { type: string } }, additionalProperties: false } }
routes:
  - upstream: payments
    prefix: /payments
    rules:
      - { match: "POST /v1/payments/:payment_id/refunds", tool: payments.refund, idempotency: required }
      - { match: "GET /v1/payments/:payment_id", tool: payments.get }
telemetry: { log_level: warn }
`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: payments
budgets: { agent-day: { unit: EUR-cent, by: [agent.id], per: day, limit: 9007199254740991 } }
rules:
  - { id: refund, effect: allow, match: { tools: [payments.refund], agents: { team: [support] } }, when: { params.amount: { gte: 1, lte: 50000 }, params.currency: { in: [EUR, USD] } }, obligations: [ { budget: { use: agent-day, amount: params.amount } } ] }
  - { id: read, effect: allow, match: { tools: [payments.get] } }
`;

/** A governed write and a governed read through the proxy, against ungoverned @fastify/http-proxy on the same upstream. */
export async function run(): Promise<BenchResult[]> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-bench-gw-'));
  const servers: Server[] = [];
  try {
    await mkdir(join(folder, 'policies'));
    await writeFile(join(folder, 'gateway.yaml'), CONFIG);
    await writeFile(join(folder, 'policies', 'bench.yaml'), POLICY);
    const administrative = makeKey('administrative').key;
    await writeFile(join(folder, 'admin.key'), administrative, { mode: 0o600 });
    const upstream = await startServer([new URL('./bench-upstream.js', import.meta.url).pathname]);
    servers.push(upstream);
    const peer = await startServer([new URL('./peer-proxy.js', import.meta.url).pathname, upstream.url]);
    servers.push(peer);
    const launcher = new URL('../../bin/svc.mjs', import.meta.url).pathname;
    const gateway = await startServer([launcher, 'start', '--config', join(folder, 'gateway.yaml'), '--port', '0'], {
      cwd: folder,
      env: { BENCH_UPSTREAM: upstream.url, SVC_BOOTSTRAP_ADMIN_KEY_FILE: join(folder, 'admin.key') },
    });
    servers.push(gateway);
    const key = await agentKey(gateway.url, administrative);
    const writes = await compare(peer.url, gateway.url, key, 'POST');
    const reads = await compare(peer.url, gateway.url, key, 'GET');
    return [
      { name: 'governed write, embedded store', ...writes, target: '>= 0.5' },
      { name: 'governed read', ...reads, target: '>= 0.8' },
    ];
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    await rm(folder, { recursive: true, force: true });
  }
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

/** Rounds alternate between the two, so that a slow minute of the machine falls on both. */
async function compare(
  peer: string,
  gateway: string,
  key: string,
  method: 'GET' | 'POST',
): Promise<Pick<BenchResult, 'value' | 'unit' | 'peer' | 'ratio'>> {
  const peers: number[] = [];
  const gateways: number[] = [];
  await load(peer, key, method, 1);
  await load(gateway, key, method, 2);
  for (let round = 0; round < ROUNDS; round += 1) {
    peers.push(await load(peer, key, method, SECONDS));
    gateways.push(await load(gateway, key, method, SECONDS));
  }
  const ratio = median(gateways) / median(peers);
  return {
    value: Math.round(median(gateways)),
    unit: 'requests/s',
    peer: `@fastify/http-proxy ${Math.round(median(peers))} requests/s`,
    ratio,
  };
}

let calls = 0;

async function load(url: string, key: string, method: 'GET' | 'POST', seconds: number): Promise<number> {
  const body = JSON.stringify({ amount: 1200, currency: 'EUR', reason: 'customer asked' });
  const result = await autocannon({
    url,
    connections: CONNECTIONS,
    duration: seconds,
    requests: [
      {
        setupRequest: (request) => {
          calls += 1;
          const headers = {
            'x-api-key': key,
            'idempotency-key': `bench-${process.pid}-${calls}`,
            'content-type': 'application/json',
          };
          return method === 'POST'
            ? { ...request, method, path: `/payments/v1/payments/pay_${calls}/refunds`, headers, body }
            : { ...request, method, path: `/payments/v1/payments/pay_${calls}`, headers: { 'x-api-key': key } };
        },
      },
    ],
  });
  const bad = result.non2xx + result.errors + result.timeouts;
  if (bad > 0) throw new Error(`${bad} of ${result.requests.total} ${method} requests to ${url} failed`);
  return result.requests.total / result.duration;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)];
  if (middle === undefined) throw new Error('nothing was measured');
  return middle;
}
