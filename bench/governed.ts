import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from '../src/identity/key-format.ts';
import { agentKey, sideBySide } from './load.ts';
import { type Server, startServer } from './processes.ts';
import type { BenchResult } from './result.ts';

/** What is measured; the store's line is replaced where it is another one. */
export const CONFIG = `
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
    const writes = await againstProxy(peer.url, gateway.url, key, 'POST');
    const reads = await againstProxy(peer.url, gateway.url, key, 'GET');
    return [
      { name: 'governed write, embedded store', ...writes, target: '>= 0.5' },
      { name: 'governed read', ...reads, target: '>= 0.8' },
    ];
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    await rm(folder, { recursive: true, force: true });
  }
}

async function againstProxy(
  peer: string,
  gateway: string,
  key: string,
  method: 'GET' | 'POST',
): Promise<Pick<BenchResult, 'value' | 'unit' | 'peer' | 'ratio'>> {
  const [peers = 0, gateways = 0] = await sideBySide([peer, gateway], key, method);
  return {
    value: Math.round(gateways),
    unit: 'requests/s',
    peer: `@fastify/http-proxy ${Math.round(peers)} requests/s`,
    ratio: gateways / peers,
  };
}
