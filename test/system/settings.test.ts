import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type FakeApi, startFakeApi } from '../sdks/fake-api.ts';
import { makeApiKey, send, startGateway, type TestGateway } from './gateway.ts';

/*
 * A real gateway of which nearly everything is set otherwise than by default: that each setting of the file is what the
 * gateway goes by (docs/operating/configuration.md).
 */

/** How far the clock of the gateway is ahead, ms, in a file that it reads. */
const clock = join(mkdtempSync(join(tmpdir(), 'svc-settings-')), 'ahead');
let api: FakeApi;
let gateway: TestGateway;
let adminPort: number;
let account: string;
let bot: string;

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 30_000, interval: 50 } as const;
const readiness = async (): Promise<string> => (await fetch(`http://127.0.0.1:${adminPort}/readyz`)).text();

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  return port;
}

beforeAll(async () => {
  api = await startFakeApi(({ url }) => ({ json: { text: 'x'.repeat(url === '/v1/long' ? 3_000 : 100) } }));
  adminPort = await freePort();
  writeFileSync(clock, '0');
  const preload = pathToFileURL(join(process.cwd(), 'test', 'torture', 'shift-clock.mjs')).href;
  const env = { NODE_OPTIONS: `--import ${preload}`, SVC_TORTURE_CLOCK: clock };
  gateway = await startGateway(
    {
      config: `
server: { host: 127.0.0.1, port: 0, admin_port: ${adminPort}, public_url: "https://gateway.example.com/svc", allowed_hosts: [Gateway.internal] }
store: { kind: embedded, path: "\${SVC_TEST_DATA}", fence: "\${SVC_TEST_DATA}-fence", backup_every: 1h, max_clock_jump: 2h }
resolve: { allow_force: true }
users: [ { id: olga, roles: [] } ]
auth: { query_key: refuse, default_expiry: { agent: 2h } }
workspaces: [ { id: demo, env: staging, agents: [ { id: bot, owner: olga }, { id: off, owner: olga, disabled: true } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: api, url: "${api.url}", timeout: 10s } ]
tools:
  - { name: api.long, upstream: api, kind: write, request: { method: POST, path: /v1/long, body: "*" } }
  - { name: api.short, upstream: api, kind: write, request: { method: POST, path: /v1/short, body: "*" } }
  - { name: api.asked, upstream: api, kind: write, request: { method: POST, path: /v1/asked, body: "*" } }
routes: [ { upstream: api, prefix: /api, rules: [ { match: "POST /v1/short", tool: api.short, idempotency: none }, { match: "POST /v1/long", tool: api.long, idempotency: none } ] } ]
limits: { body: 2KiB, params_depth: 5, params_values: 100, response_kept: 200B, response: 1KiB, connections: 20 }
telemetry: { access_log: false }
`,
      policies: {
        'p.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: p
owner: team
rules:
  - { id: long, effect: allow, match: { tools: [api.long] } }
  - { id: short, effect: allow, match: { tools: [api.short], env: [staging] } }
  - { id: ask, effect: require_approval, match: { tools: [api.asked] }, approval: { approvers: { users: [olga] } } }
`,
      },
    },
    { env },
  );
  account = await makeApiKey(gateway, 'olga', { kind: 'account', workspace: 'demo' });
  bot = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
});
afterAll(async () => {
  await gateway.dispose();
  await api.close();
  rmSync(dirname(clock), { recursive: true });
});

let made = 0;
const run = (tool: string, params: object, key = bot) =>
  send(gateway.url, key, 'POST', '/v1/workspaces/demo/effects', {
    action_type: 'mcp.tool_call',
    tool,
    params,
    idempotency_key: `settings-${(made += 1)}`,
  });

it('health and metrics are at their own port alone', async () => {
  const at = async (url: string): Promise<readonly number[]> =>
    Promise.all(['/livez', '/readyz', '/metrics'].map(async (path) => (await fetch(`${url}${path}`)).status));
  expect(await at(`http://127.0.0.1:${adminPort}`)).toEqual([200, 200, 200]);
  expect(await at(gateway.url)).toEqual([404, 404, 404]);
});

it('the fence is where it was set, and a backup is asked for', async () => {
  const { install_id: installId } = JSON.parse(readFileSync(join(gateway.dataFolder, 'install.json'), 'utf8'));
  expect(readdirSync(`${gateway.dataFolder}-fence`)).toEqual([`${installId}.json`]);
  await vi.waitFor(async () => expect(await readiness()).toContain('"part":"backup"'), PATIENT);
});

it('a Host header may carry the names that were set, in any case, and no others', async () => {
  const { hostname, port } = new URL(gateway.url);
  const asked = async (host: string): Promise<number | undefined> => {
    const sent = request({ hostname, port, path: '/.well-known/jwks.json', headers: { host } }).end();
    const [answer] = await once(sent, 'response');
    answer.resume();
    return answer.statusCode;
  };
  expect(await Promise.all(['gateway.INTERNAL', 'gateway.example.com', 'other.internal'].map(asked))).toEqual([
    200, 200, 403,
  ]);
});

it('a key does not count where it stands in the address', async () => {
  const path = '/v1/workspaces/demo/effects';
  expect((await fetch(`${gateway.url}${path}?api_key=${account}`)).status).toBe(401);
  expect((await send(gateway.url, account, 'GET', path)).status).toBe(200);
});

it('keys end by default when it was set, by their kind', async () => {
  const endsAfter = async (more: object): Promise<number | null> => {
    const path = '/v1/beta/users/olga/keys';
    const { body } = await send(gateway.url, gateway.administrativeKey, 'POST', path, { name: 'k', ...more });
    return body.expires_at === null ? null : Date.parse(body.expires_at) - Date.parse(body.created_at);
  };
  const kinds = [
    { kind: 'agent', workspace: 'demo', agent_id: 'bot' },
    { kind: 'account', workspace: 'demo' },
  ];
  expect(await Promise.all(kinds.map(endsAfter))).toEqual([7_200_000, null]);
});

it('bodies are as long, as deep and of as many values as was set', async () => {
  const status = async (params: object): Promise<string> => {
    const answer = await run('api.short', params);
    return answer.status === 200 ? 'done' : `${answer.status} ${answer.body.code}`;
  };
  const nested = (depth: number): object => (depth === 0 ? {} : { a: nested(depth - 1) });
  const many = (count: number): object => ({ list: Array.from({ length: count }, () => 1) });
  expect(await status({ text: 'x'.repeat(1_500) })).toBe('done');
  expect(await status({ text: 'x'.repeat(2_048) })).toBe('413 too_large');
  // The body itself and its params are two levels.
  expect([await status(nested(3)), await status(nested(4))]).toEqual(['done', '400 invalid_json']);
  expect([await status(many(80)), await status(many(100))]).toEqual(['done', '400 invalid_json']);
});

it('of an answer as much is read and kept as was set', async () => {
  const short = await run('api.short', {});
  expect(short.body.result).toEqual({ text: 'x'.repeat(100) });
  const long = await run('api.long', {});
  expect(long.body).toMatchObject({ decision: 'committed', response_truncated: true });
  expect(long.body.result).toHaveLength(200);
  const headers = { 'x-api-key': bot, 'content-type': 'application/json' };
  const passed = await fetch(`${gateway.url}/api/v1/long`, { method: 'POST', headers, body: '{}' });
  expect([passed.status, (await passed.text()).length]).toEqual([200, 1_024]);
});

it('agents that are switched off are refused, and whoever waits is sent to the published address', async () => {
  const off = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'off' });
  expect((await run('api.short', {}, off)).status).not.toBe(200);
  const { body } = await run('api.asked', {});
  expect(body.approval.url).toMatch(/^https:\/\/gateway\.example\.com\/svc\/approve\/demo\//);
});

it('more connections than were set are not held: the longest idle one goes', async () => {
  const { hostname, port } = new URL(gateway.url);
  const sockets: Socket[] = [];
  try {
    for (let n = 0; n < 21; n += 1) {
      const socket = connect(Number(port), hostname);
      sockets.push(socket);
      socket.on('error', () => undefined);
      await once(socket, 'connect');
    }
    await vi.waitFor(() => expect(sockets.filter(({ destroyed }) => destroyed).length).toBeGreaterThan(0), PATIENT);
    expect(sockets[20]?.destroyed).toBe(false);
  } finally {
    for (const socket of sockets) socket.destroy();
  }
});

it('a clock that is further ahead than may be is not believed, and no call is a line of the log', async () => {
  expect((await send(gateway.url, bot, 'POST', '/api/v1/short', {})).status).toBe(200);
  writeFileSync(clock, String(3 * 3_600_000));
  await vi.waitFor(async () => expect(await readiness()).toContain('clock_ahead'), PATIENT);
  // What is gathered for the log is written when it stops.
  await gateway.stop();
  expect(gateway.log()).toContain('"msg":"ready"');
  expect(gateway.log()).not.toContain('"msg":"call"');
});
