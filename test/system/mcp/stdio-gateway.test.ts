import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { type ClientCapabilities, CreateMessageRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { approvePins, comparePins } from '../../../src/pins/compare.ts';
import { renderPinLock } from '../../../src/pins/lock-file.ts';
import { inspectServer } from '../../../src/upstreams/mcp/inspect-server.ts';
import { Keeper } from '../../../src/upstreams/mcp/stdio/keeper.ts';
import { StdioServer } from '../../../src/upstreams/mcp/through.ts';
import { expectFairShares } from './session-shares.ts';
import { makeApiKey, send, startGateway, type TestGateway, untilSent } from '../gateway.ts';

const EVERYTHING = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: every
owner: team
rules:
  - { id: all, effect: allow, match: { upstreams: [every] } }
  - { id: never, effect: deny, match: { tools: [every.get-env] }, reason: "Never" }
`;

let folder: string;
let gateway: TestGateway;
let key: string;
let keyOfCat: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'svc-mcp-stdio-'));
  const pins = join(folder, 'every.lock.json');
  writeFileSync(pins, await lockOfServer());
  const config = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga }, { id: cat, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams:
  - id: every
    mcp: { command: ["${process.execPath}", "${EVERYTHING}", stdio], env: [GIVEN], cwd: "${folder}", pins: "${pins}", sessions: 8 }
`;
  gateway = await startGateway({ config, policies: { 'every.yaml': POLICY } }, { env: { GIVEN: 'yes', KEPT: 'back' } });
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
  keyOfCat = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'cat' });
});
afterAll(async () => {
  await gateway.dispose();
  rmSync(folder, { recursive: true });
});

/** A lock file with all that the server lists. */
async function lockOfServer(): Promise<string> {
  const keeper = new Keeper();
  const limits = { lineBytes: 1_000_000, graceMs: 300 };
  const command = { command: process.execPath, args: [EVERYTHING, 'stdio'], env: {}, cwd: null };
  const server = new StdioServer({ command, most: 1, idleMs: 60_000, limits }, keeper, () => performance.now());
  const mcp = { path: '/', allow: [] };
  const settings = { id: 'every', url: '', timeoutMs: 10_000, network: 'any', credentials: null, mcp } as const;
  const live = await inspectServer({ settings, through: server, now: Date.now });
  await server.destroy();
  keeper.close();
  if (typeof live === 'string') throw new Error(live);
  const approved = approvePins(null, live, comparePins('every', null, live), { kind: 'all' });
  if (!approved.ok) throw new Error('nothing to pin');
  return renderPinLock(approved.lock);
}

async function connect(capabilities: ClientCapabilities = {}, of = key): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' }, { capabilities });
  const headers = { authorization: `Bearer ${of}` };
  const transport = new StreamableHTTPClientTransport(new URL(`${gateway.url}/mcp/every`), {
    requestInit: { headers },
  });
  await client.connect(transport as Parameters<typeof client.connect>[0]);
  return client;
}

/** Children of the gateway that are the server. */
function servers(): readonly number[] {
  const pid = gateway.pid;
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number);
  return children.filter((child) => readFileSync(`/proc/${child}/cmdline`, 'utf8').includes(EVERYTHING));
}

test('a server that runs as a child is governed as any other: listed, called, denied', async () => {
  const one = await connect();
  const two = await connect();
  expect((await one.listTools()).tools.map(({ name }) => name)).toContain('echo');
  expect(await one.callTool({ name: 'echo', arguments: { message: 'hi' } })).toMatchObject({
    content: [{ text: 'Echo: hi' }],
    _meta: { 'dev.svc-gateway/decision': { decision: 'committed' } },
  });
  expect(await two.callTool({ name: 'get-env', arguments: {} })).toMatchObject({
    isError: true,
    _meta: { 'dev.svc-gateway/decision': { decision: 'denied_policy' } },
  });
  // The gateway’s own look at the tools is a session of a moment.
  await expect.poll(() => servers().length).toBe(2);
  // Of the gateway's variables only those that are named, beside the mark of who owns it.
  for (const pid of servers()) {
    const variables = readFileSync(`/proc/${pid}/environ`, 'utf8')
      .split('\0')
      .filter((text) => text !== '');
    expect(variables.map((text) => text.replace(/=.*/s, '')).toSorted()).toEqual(['GIVEN', 'SVC_STDIO_OWNER']);
    expect(variables).toContain('GIVEN=yes');
  }
  await one.close();
  await two.close();
});

test('tools that a server shows to capable clients alone are pinned, looked at, and governed as any other', async () => {
  const ofCapable = ['trigger-sampling-request', 'trigger-elicitation-request', 'get-roots-list'];
  const plain = await connect();
  const names = (await plain.listTools()).tools.map(({ name }) => name);
  expect(names).toContain('echo');
  expect(names.filter((name) => ofCapable.includes(name))).toEqual([]);
  const capable = await connect({ sampling: {}, elicitation: {}, roots: {} });
  capable.setRequestHandler(CreateMessageRequestSchema, () => ({
    model: 'of-the-test',
    role: 'assistant',
    content: { type: 'text', text: 'What the model says' },
  }));
  expect((await capable.listTools()).tools.map(({ name }) => name)).toEqual(expect.arrayContaining(ofCapable));
  const sampled = await capable.callTool({ name: 'trigger-sampling-request', arguments: { prompt: 'Say it' } });
  expect(sampled).toMatchObject({ _meta: { 'dev.svc-gateway/decision': { decision: 'committed' } } });
  expect(JSON.stringify(sampled.content)).toContain('What the model says');
  // A look of the gateway's own sees them too: none of them is quarantined, or news.
  const operator = await makeApiKey(gateway, 'olga', { kind: 'account', workspace: 'demo' });
  // One that began before the server announced its further tools does not count.
  const listed = async () => {
    expect((await send(gateway.url, operator, 'GET', '/v1/workspaces/demo/pins/every')).status).toBe(200);
    return (await send(gateway.url, operator, 'GET', '/v1/workspaces/demo/pins')).body;
  };
  const notPinned = ({ pins }: { readonly pins: readonly { readonly tool: string; readonly state: string }[] }) =>
    pins.filter(({ state }) => state !== 'pinned').map(({ tool, state }) => `${tool} ${state}`);
  await expect.poll(async () => notPinned(await listed()), { timeout: 30_000 }).toEqual([]);
  const body = await listed();
  const pins: readonly { readonly tool: string }[] = body.pins;
  expect(pins.map(({ tool }) => tool)).toEqual(expect.arrayContaining(ofCapable.map((name) => `every.${name}`)));
  expect(body.servers).toMatchObject([{ upstream: 'every', unapproved: [] }]);
  await plain.close();
  await capable.close();
});

test('through the effects API it runs in a session of the gateway’s own', async () => {
  const call = { tool: 'every.echo', params: { message: 'again' }, idempotency_key: 'one' };
  // On a busy machine the server may not have started in the time that a call has to be sent.
  const ran = await untilSent(() => send(gateway.url, key, 'POST', '/v1/workspaces/demo/effects', call));
  expect(JSON.stringify(ran.body)).toContain('Echo: again');
});

test('one agent has all processes: another still gets one, in place of the idlest of the agent with the most', async () => {
  // A session of the gateway's own, which nobody uses any more, would make room first.
  await gateway.stop();
  gateway = await gateway.restart();
  await expectFairShares(
    (who) => connect({}, who === 'cat' ? keyOfCat : key),
    8,
    (client, message) => client.callTool({ name: 'echo', arguments: { message } }),
  );
  await expect.poll(() => servers().length).toBe(0);
});

test('the gateway is killed: its children are gone', async () => {
  const client = await connect();
  await client.callTool({ name: 'echo', arguments: { message: 'before' } });
  const before = servers();
  expect(before.length).toBeGreaterThan(0);
  gateway.kill('SIGKILL');
  await expect
    .poll(() =>
      before.filter((pid) => {
        try {
          return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
        } catch {
          return false;
        }
      }),
    )
    .toEqual([]);
  await client.close().catch(() => {});
});
