import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Json } from '../../../src/json/value.ts';
import { approvePins, comparePins } from '../../../src/pins/compare.ts';
import { renderPinLock } from '../../../src/pins/lock-file.ts';
import { Keeper } from '../../../src/upstreams/mcp/stdio/keeper.ts';
import { StdioServer } from '../../../src/upstreams/mcp/through.ts';
import { begin, result } from '../../upstreams/mcp-stdio/ask.ts';
import { freePort } from '../../redis/servers.ts';
import { makeApiKey, startGateway, type TestGateway } from '../gateway.ts';

/*
 * Servers that people use, as npm has them: three as programs, one over streamable HTTP. Each has a policy of its own.
 */

const installed = createRequire(import.meta.url);
const program = (name: string): string => installed.resolve(`@modelcontextprotocol/server-${name}/dist/index.js`);

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: servers
owner: team
rules:
  - { id: every, effect: allow, match: { upstreams: [every, remote] } }
  - { id: no-environment, effect: deny, match: { tools: [remote.get-env] }, reason: "Never" }
  - { id: files, effect: allow, match: { tools: [files.write_file, files.read_text_file, files.list_directory, files.move_file] } }
  - { id: no-move, effect: deny, match: { tools: [files.move_file] }, reason: "Files stay" }
  - { id: memory, effect: allow, match: { tools: [memory.create_entities, memory.read_graph] } }
`;

let folder: string;
let shared: string;
let gateway: TestGateway;
let key: string;
let remote: ChildProcess;

beforeAll(async () => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'svc-real-servers-')));
  shared = join(folder, 'shared');
  mkdirSync(shared);
  const memory = { MEMORY_FILE_PATH: join(folder, 'memory.jsonl') };
  const [everyPins, remotePins, filesPins, memoryPins] = await Promise.all([
    pinsOf('every', [program('everything'), 'stdio'], {}),
    // What the server lists does not depend on how it is reached.
    pinsOf('remote', [program('everything'), 'stdio'], {}),
    pinsOf('files', [program('filesystem'), shared], {}),
    pinsOf('memory', [program('memory')], memory),
  ]);
  const port = await freePort();
  remote = spawn(process.execPath, [program('everything'), 'streamableHttp'], {
    env: { PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  await listening(remote);
  const node = JSON.stringify(process.execPath);
  const config = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams:
  - { id: every, mcp: { command: [${node}, "${program('everything')}", stdio], env: [GIVEN], pins: "${everyPins}" } }
  - { id: files, mcp: { command: [${node}, "${program('filesystem')}", "${shared}"], pins: "${filesPins}" } }
  - { id: memory, mcp: { command: [${node}, "${program('memory')}"], env: [MEMORY_FILE_PATH], pins: "${memoryPins}" } }
  - { id: remote, mcp: { url: "http://127.0.0.1:${port}/mcp", pins: "${remotePins}" } }
`;
  gateway = await startGateway(
    { config, policies: { 'servers.yaml': POLICY } },
    { env: { ...memory, GIVEN: 'yes', SHOP_TOKEN: 'canary-4711' } },
  );
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
});
afterAll(async () => {
  await gateway?.dispose();
  remote?.kill();
  rmSync(folder, { recursive: true });
});

/** Writes a lock file with all that a server lists. @returns its path */
async function pinsOf(upstream: string, args: string[], env: Record<string, string>): Promise<string> {
  const keeper = new Keeper();
  const limits = { lineBytes: 1_000_000, graceMs: 300 };
  const command = { command: process.execPath, args, env, cwd: null };
  const server = new StdioServer({ command, most: 1, idleMs: 60_000, limits }, keeper, () => performance.now());
  const { session, instructions } = await begin(server);
  const { tools } = await result(server, session, 'tools/list', {});
  await server.destroy();
  keeper.close();
  const live = { server: null, instructions, tools: tools as Json[] };
  const approved = approvePins(null, live, comparePins(upstream, null, live), { kind: 'all' });
  if (!approved.ok) throw new Error('nothing to pin');
  const file = join(folder, `${upstream}.lock.json`);
  writeFileSync(file, renderPinLock(approved.lock));
  return file;
}

/** The server says on standard error that it listens. */
async function listening(child: ChildProcess): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    child.stderr?.on('data', (text: Buffer) => {
      if (/listening on port/i.test(text.toString())) resolve();
    });
    child.once('exit', (code) => reject(new Error(`the server ended with code ${code}`)));
  });
}

async function connect(upstream: string): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(`${gateway.url}/mcp/${upstream}`), {
    requestInit: { headers: { 'x-api-key': key } },
  });
  await client.connect(transport as Parameters<typeof client.connect>[0]);
  return client;
}

/** A call, under an idempotency key where there is one. @returns the decision and the text of the result */
async function call(client: Client, name: string, args: Record<string, unknown>, once?: string): Promise<string[]> {
  const answer = await client.callTool({
    name,
    arguments: args,
    ...(once !== undefined && { _meta: { 'dev.svc-gateway/idempotency-key': once } }),
  });
  const said = answer._meta?.['dev.svc-gateway/decision'] as { readonly decision: string } | undefined;
  return [said?.decision ?? 'none', JSON.stringify(answer.content)];
}

test('server-everything as a program: it sees of the gateway’s environment what is named, and no secret', async () => {
  const client = await connect('every');
  const [decision, text = ''] = await call(client, 'get-env', {});
  expect(decision).toBe('committed');
  expect(text).toContain('GIVEN');
  expect(text).not.toContain('canary-4711');
  expect(text).not.toContain('SHOP_TOKEN');
  expect(await call(client, 'echo', { message: 'hi' })).toEqual(['committed', expect.stringContaining('Echo: hi')]);
  await client.close();
});

test('server-everything over streamable HTTP: listed, called, and what is denied is not', async () => {
  const client = await connect('remote');
  const { tools } = await client.listTools();
  expect(tools.map(({ name }) => name)).toContain('get-sum');
  expect(await call(client, 'get-sum', { a: 2, b: 3 })).toEqual(['committed', expect.stringContaining('5')]);
  const [decision, text = ''] = await call(client, 'get-env', {});
  expect(decision).toBe('denied_policy');
  expect(text).not.toContain('PORT');
  await client.close();
});

test('server-filesystem: a write runs once under its key, what is denied leaves the disk as it was', async () => {
  const client = await connect('files');
  const file = join(shared, 'note.txt');
  expect((await call(client, 'write_file', { path: file, content: 'one' }, 'k1'))[0]).toBe('committed');
  expect(readFileSync(file, 'utf8')).toBe('one');
  writeFileSync(file, 'changed by somebody since');
  const [again, text = ''] = await call(client, 'write_file', { path: file, content: 'one' }, 'k1');
  expect(again).toBe('duplicate_blocked');
  expect(text).toContain('Successfully wrote');
  expect(readFileSync(file, 'utf8')).toBe('changed by somebody since');
  expect((await call(client, 'move_file', { source: file, destination: join(shared, 'gone.txt') }))[0]).toBe(
    'denied_policy',
  );
  expect([existsSync(file), existsSync(join(shared, 'gone.txt'))]).toEqual([true, false]);
  // The server's own guard goes on working behind the gateway.
  const outside = await call(client, 'read_text_file', { path: '/etc/hostname' });
  expect(outside[1]).toContain('Access denied');
  await client.close();
});

test('server-memory: a write runs once under its key, what no rule allows does not run', async () => {
  const client = await connect('memory');
  const kept = join(folder, 'memory.jsonl');
  const entities = [{ name: 'Acme', entityType: 'customer', observations: ['pays late'] }];
  expect((await call(client, 'create_entities', { entities }, 'k2'))[0]).toBe('committed');
  expect(readFileSync(kept, 'utf8')).toContain('Acme');
  expect((await call(client, 'delete_entities', { entityNames: ['Acme'] }))[0]).toBe('denied_policy');
  expect((await call(client, 'read_graph', {}))[1]).toContain('Acme');
  rmSync(kept);
  expect((await call(client, 'create_entities', { entities }, 'k2'))[0]).toBe('duplicate_blocked');
  expect(existsSync(kept)).toBe(false);
  await client.close();
});
