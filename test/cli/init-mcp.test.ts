import { type ChildProcess, spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { parse } from 'yaml';
import { GOOD_KEY, type McpUpstream, resultsOf, startMcpUpstream } from '../system/mcp/upstream.ts';
import { freePort } from '../redis/servers.ts';
import { begin, svc } from './run.ts';

const home = process.cwd();
const installed = createRequire(import.meta.url);
const program = (name: string): string => installed.resolve(`@modelcontextprotocol/server-${name}/dist/index.js`);
const odd = join(import.meta.dirname, '..', 'upstreams', 'mcp-stdio', 'odd-server.mjs');

let upstream: McpUpstream;
let folder: string;
/** What the server at `/raw` lists. */
let tools: unknown[] = [];

beforeAll(async () => {
  upstream = await startMcpUpstream();
  const about = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'shop-mcp-server' } };
  upstream.raw = resultsOf((method) => (method === 'initialize' ? about : { tools }));
});
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'svc-init-mcp-')));
  process.chdir(folder);
});
afterEach(() => {
  vi.unstubAllEnvs();
  process.chdir(home);
  rmSync(folder, { recursive: true, force: true });
});
afterAll(() => upstream.stop());

const raw = (...more: string[]) => svc('init', '--mcp', `${upstream.url}/raw`, ...more);
const findings = async () => JSON.parse((await svc('config', 'check', 'gateway.yaml', '--json')).out) as unknown;
const CLEAN = { findings: [] };

/** What the official client gets of a call: the decision, and the text. */
async function called(client: Client, name: string, args: Record<string, unknown>): Promise<string[]> {
  const answer = await client.callTool({ name, arguments: args });
  const said = answer._meta?.['dev.svc-gateway/decision'] as { readonly decision: string } | undefined;
  return [said?.decision ?? 'none', JSON.stringify(answer.content)];
}

describe('from a server to calls behind the gateway', () => {
  test('a program: what was written loads, starts, lets reads and writes through and holds back what may destroy', async () => {
    vi.stubEnv('HOME', folder);
    vi.stubEnv('ITS_TOKEN', 'canary-4711');
    const { code, out, err } = await svc(
      'init',
      '--mcp',
      '--env',
      'ITS_TOKEN',
      '--name',
      'files',
      '--',
      'node',
      program('filesystem'),
      folder,
    );
    expect([code, err]).toEqual([0, '']);
    expect(out).toContain('14 tools of secure-filesystem-server');
    expect(out).toMatch(/10 allowed, they only read: .*read_text_file/);
    expect(out).toMatch(/1 allowed, they write: create_directory/);
    expect(out).toMatch(/3 wait for a person each time: edit_file, move_file, write_file/);
    const gateway = readFileSync('gateway.yaml', 'utf8');
    expect(gateway).toContain('env: [PATH, HOME, ITS_TOKEN]');
    expect(gateway).not.toContain('canary-4711');
    expect(await findings()).toEqual(CLEAN);

    // The next steps, as they are printed, with a free port in place of 8080.
    const steps = out.split('\n').filter((line) => line.startsWith('  node ') || line.startsWith('  npx '));
    const [start = '', agentKey = '', config = ''] = steps.map((line) =>
      line.replace(/^ +\S+ (?:\S+svc\.mjs|svc) /, ''),
    );
    const running = begin(...start.split(' '), '--port', '0');
    try {
      const { url } = JSON.parse(await running.line(/"event":"ready"/)) as { url: string };
      const made = await svc(...agentKey.split(' '));
      const [key = ''] = /svc_agent_\S+/.exec(made.out) ?? [];
      const snippet = JSON.parse((await svc(...config.split(' '))).out) as { mcpServers: { files: { url: string } } };
      const at = snippet.mcpServers.files.url;
      expect(at).toBe('http://127.0.0.1:8080/mcp/files');
      const client = new Client({ name: 'test', version: '1' });
      const transport = new StreamableHTTPClientTransport(new URL(at.replace('http://127.0.0.1:8080', url)), {
        requestInit: { headers: { 'x-api-key': key } },
      });
      await client.connect(transport as Parameters<typeof client.connect>[0]);
      expect((await client.listTools()).tools).toHaveLength(14);
      writeFileSync(join(folder, 'note.txt'), 'as it was');
      const note = { path: join(folder, 'note.txt') };
      expect(await called(client, 'read_text_file', note)).toEqual(['committed', expect.stringContaining('as it was')]);
      expect((await called(client, 'read_text_file', note))[0]).toBe('committed');
      expect((await called(client, 'create_directory', { path: join(folder, 'new') }))[0]).toBe('committed');
      expect(existsSync(join(folder, 'new'))).toBe(true);
      expect((await called(client, 'write_file', { ...note, content: 'gone' }))[0]).toBe('pending_approval');
      expect(readFileSync(note.path, 'utf8')).toBe('as it was');
      await client.close();
    } finally {
      running.stop();
      await running.ended;
    }
  });

  test('an address that wants a key: it comes from a variable, and stands in no file', async () => {
    vi.stubEnv('SHOP_KEY', GOOD_KEY);
    const { code, out, err } = await svc(
      'init',
      '--mcp',
      `${upstream.url}/old`,
      '--key-env',
      'SHOP_KEY',
      '--name',
      'shop',
    );
    expect([code, err]).toEqual([0, '']);
    expect(await findings()).toEqual(CLEAN);
    const texts = ['gateway.yaml', 'policies/first.yaml', 'mcp/shop.lock.json'].map((file) =>
      readFileSync(file, 'utf8'),
    );
    expect([...texts, out].join('')).not.toContain(GOOD_KEY);
    expect(texts[0]).toContain('credentials: { header: authorization, value: "Bearer ${SHOP_KEY}" }');
    // The gateway reads the same with it.
    expect(await svc('tools', 'diff', '--config', 'gateway.yaml', '--upstream', 'shop')).toMatchObject({ code: 0 });
  });

  test('a key for another header than Authorization: it goes there as it is, now and from the files', async () => {
    vi.stubEnv('SHOP_KEY', 'its-key');
    tools = [{ name: 'get_note', annotations: { readOnlyHint: true } }];
    const before = upstream.seen.length;
    expect((await raw('--key-env', 'SHOP_KEY', '--header', 'X-Server-Key')).code).toBe(0);
    expect(readFileSync('gateway.yaml', 'utf8')).toContain(
      'credentials: { header: x-server-key, value: "${SHOP_KEY}" }',
    );
    expect(await svc('tools', 'diff', '--config', 'gateway.yaml', '--upstream', 'shop')).toMatchObject({ code: 0 });
    const came = upstream.seen.slice(before);
    expect(came.length).toBeGreaterThan(1);
    for (const { headers } of came)
      expect([headers['x-server-key'], headers.authorization]).toEqual(['its-key', undefined]);
  });

  test.each(['everything', 'memory'])('server-%s over its own transport: no finding', async (name) => {
    const port = await freePort();
    const isRemote = name === 'everything';
    const remote = isRemote ? await startEverything(port) : null;
    try {
      const server = isRemote ? [`http://127.0.0.1:${port}/mcp`] : ['--', 'node', program(name)];
      const { code, out } = await svc('init', '--json', '--mcp', ...server);
      expect(code).toBe(0);
      const groups = (JSON.parse(out) as { tools: Record<string, string[]> }).tools;
      if (isRemote) expect(groups['writes']).toContain('gzip-file-as-resource');
      else
        expect(groups).toEqual({
          reads: ['open_nodes', 'read_graph', 'search_nodes'],
          writes: ['add_observations', 'create_entities', 'create_relations'],
          destructive: ['delete_entities', 'delete_observations', 'delete_relations'],
        });
      expect(await findings()).toEqual(CLEAN);
    } finally {
      remote?.kill();
    }
  });
});

async function startEverything(port: number): Promise<ChildProcess> {
  const child = spawn(process.execPath, [program('everything'), 'streamableHttp'], {
    env: { PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  await new Promise<void>((resolve, reject) => {
    child.stderr?.on('data', (text: Buffer) => {
      if (/listening on port/i.test(text.toString())) resolve();
    });
    child.once('exit', (code) => reject(new Error(`the server ended with code ${code}`)));
  });
  return child;
}

describe('what is made of the tools', () => {
  test.each([
    ['for people', []],
    ['as JSON', ['--json']],
  ])('stands beside files that cannot be used, and the exit code says so (%s)', async (_, more) => {
    tools = [{ name: 'add_note', inputSchema: { type: 'object' } }];
    mkdirSync('policies');
    writeFileSync('policies/mine.yaml', 'rules: 7\n');
    const { code, out, err } = await raw('--force', ...more);
    expect(code).toBe(1);
    expect(more.length === 0 ? err : JSON.stringify(JSON.parse(out).findings)).toContain('policies/mine.yaml');
  });

  test('annotations and names are hints: neither alone makes a grave tool harmless', async () => {
    const hints = (name: string, annotations?: object) => ({
      name,
      inputSchema: { type: 'object' },
      ...(annotations && { annotations }),
    });
    tools = [
      hints('get_order', { readOnlyHint: true }),
      hints('delete_order', { readOnlyHint: true }),
      hints('list_things'),
      hints('add_note'),
      hints('frobnicate'),
      hints('put_note', { readOnlyHint: false }),
      hints('make_note', { readOnlyHint: false, destructiveHint: false }),
      hints('create_refund', { destructiveHint: false }),
      hints('createWebhook', { destructiveHint: false }),
      hints('set_price', { destructiveHint: true }),
    ];
    const { code, out } = await raw('--json');
    expect(code).toBe(0);
    expect((JSON.parse(out) as { tools: unknown }).tools).toEqual({
      reads: ['get_order'],
      writes: ['add_note', 'list_things', 'make_note'],
      destructive: ['createWebhook', 'create_refund', 'delete_order', 'frobnicate', 'put_note', 'set_price'],
    });
    const gateway = readFileSync('gateway.yaml', 'utf8');
    expect(gateway).toMatch(/\{ name: get_order, kind: read \}$/m);
    expect(gateway).toMatch(/\{ name: list_things, risk: low, is_error: failed \} .*only its name says/);
    expect(gateway).toMatch(/\{ name: create_refund, risk: critical \} .*the server says that it destroys nothing/);
    expect(gateway).toMatch(/\{ name: delete_order, risk: high \} .*the server says that it only reads/);
    expect(gateway).toMatch(/\{ name: frobnicate, risk: high \} .*does not say/);
    expect(await findings()).toEqual(CLEAN);
  });

  test('the groups are written down tool by tool: what the server adds later is in none of them', async () => {
    tools = [
      { name: 'get_note', annotations: { readOnlyHint: true } },
      { name: 'list_notes', annotations: { readOnlyHint: true } },
      { name: 'add_note' },
      { name: 'delete_note' },
    ];
    expect((await raw()).code).toBe(0);
    const { rules } = parse(readFileSync('policies/first.yaml', 'utf8')) as {
      readonly rules: readonly { readonly id: string; readonly match: { readonly tools?: readonly string[] } }[];
    };
    expect(Object.fromEntries(rules.map(({ id, match }) => [id, match.tools]))).toEqual({
      reads: ['shop.get_note', 'shop.list_notes'],
      writes: ['shop.add_note'],
      destructive: ['shop.delete_note'],
    });
  });

  test('the comments of the policy hold when they are taken in', async () => {
    tools = [
      { name: 'add_note', inputSchema: { type: 'object' } },
      { name: 'get_note', annotations: { readOnlyHint: true } },
    ];
    expect((await raw()).code).toBe(0);
    const file = join('policies', 'first.yaml');
    const before = readFileSync(file, 'utf8');
    const taken = before.replace(/^( *)# (budgets: |- budget|- claim|- id: |  effect: |  match: )/gm, '$1$2');
    expect(taken.split('\n').filter((line, at) => line !== before.split('\n')[at])).toHaveLength(6);
    writeFileSync(file, taken.replace('params.ID', 'params.id'));
    expect(await findings()).toEqual(CLEAN);
  });

  test('of writes an agent makes sixty a minute, of all tools together', async () => {
    tools = [{ name: 'add_note', inputSchema: { type: 'object' } }];
    expect((await raw()).code).toBe(0);
    const policy = readFileSync('policies/first.yaml', 'utf8');
    expect(policy).toMatch(
      /id: write-rate\n.*\n +effect: constrain\n +match: \{ kinds: \[write\] \}\n +obligations:\n +- rate_limit: \{ by: \[agent\.id\], limit: 60, per: minute \}\n/,
    );
  });

  test('what the server says is quoted: it becomes no line of YAML and no reference to the environment', async () => {
    tools = [
      { name: 'true', title: 'a\n  - id: every\n    effect: allow', annotations: { readOnlyHint: true } },
      { name: '007', title: '${HOME} $(id) \u202e', annotations: { readOnlyHint: true } },
    ];
    expect((await raw()).code).toBe(0);
    expect(await findings()).toEqual(CLEAN);
    const policy = readFileSync('policies/first.yaml', 'utf8');
    expect(policy.match(/^ +- id: \S+/gm)).toEqual(['  - id: reads', '  - id: write-rate']);
    expect(policy).not.toContain('\u202e');
    expect(readFileSync('mcp/shop.lock.json', 'utf8')).toContain(String.raw`\u202e`);
  });

  test('tools that nobody could call are left out, and named', async () => {
    const long = 'n'.repeat(124);
    tools = [
      { name: 'fine' },
      { name: 'not fine' },
      { name: 'twice' },
      { name: 'twice' },
      { title: 'none' },
      { name: long },
    ];
    const { code, out } = await raw();
    expect(code).toBe(0);
    expect(out).toContain('left out: not fine: shop.not fine is no name that a tool can have here');
    expect(out).toContain('left out: twice: the server lists the name twice');
    expect(out).toContain('left out: (without a name): it has no name');
    expect(out).toContain(`left out: ${long}: shop.nnn`);
    expect(out).toContain('1 tool of shop-mcp-server, pinned as they are now');
    expect(await findings()).toEqual(CLEAN);
    const lock = JSON.parse(readFileSync('mcp/shop.lock.json', 'utf8')) as { tools: { name: string }[] };
    expect(lock.tools.map(({ name }) => name)).toEqual(['fine']);
    expect(readFileSync('gateway.yaml', 'utf8')).toContain('#   not fine: ');
    const { skipped } = JSON.parse((await raw('--force', '--json')).out) as { skipped: string[] };
    const named = new Set(skipped.map((one) => one.split(':')[0]));
    expect(named).toEqual(new Set(['not fine', 'twice', '(without a name)', long]));
  });

  test('a name with a line break in it ends neither its comment nor its line on the terminal', async () => {
    const name = 'a\npolicies: { mode: observe }\u001b[2J';
    tools = [{ name: 'fine' }, { name }];
    const { code, out } = await raw();
    expect(code).toBe(0);
    expect(out).toContain('left out: a policies: { mode: observe }[2J: ');
    expect(readFileSync('gateway.yaml', 'utf8')).toContain('#   a policies: { mode: observe }[2J: ');
    expect(await findings()).toEqual(CLEAN);
    tools = [{ name }];
    const { err } = await raw('--force');
    expect(err).toContain('a policies: { mode: observe }[2J: ');
  });
});

describe('what cannot be done is said, and nothing is written', () => {
  afterEach(() => expect(readdirSync(folder)).toEqual([]));
  const refused = async (...args: string[]): Promise<string> => {
    const { code, err } = await svc('init', ...args);
    expect(code).toBe(args.includes('--diff') ? 64 : 2);
    return err;
  };

  test('a server that is not there, is none, wants a key, or has no tools', async () => {
    const nobody = `http://127.0.0.1:${await freePort()}/mcp`;
    expect(await refused('--mcp', nobody)).toContain('cannot be read: the upstream refuses connections');
    expect(await refused('--mcp', `${upstream.url}/old`)).toMatch(/status 401.*--key-env/);
    vi.stubEnv('SHOP_KEY', 'svc_agent_of-another');
    expect(await refused('--mcp', `${upstream.url}/old`, '--key-env', 'SHOP_KEY')).toMatch(/status 403.*another one/);
    expect(await refused('--mcp', `${upstream.url}/old`, '--key-env', 'UNSET_KEY')).toContain('UNSET_KEY holds no key');
    const pages = createServer(({ url }, response) => {
      response.writeHead(url === '/sse' ? 405 : 200).end('<html>');
    }).listen(0, '127.0.0.1');
    await once(pages, 'listening');
    try {
      const { port } = pages.address() as AddressInfo;
      const nowhere = await refused('--mcp', `http://127.0.0.1:${port}`);
      expect(nowhere).toMatch(/does not list its tools.*address of its MCP/);
      expect(nowhere).not.toContain('transport');
      expect(await refused('--mcp', `http://127.0.0.1:${port}/sse`)).toMatch(/status 405.*transport: sse/);
    } finally {
      pages.close();
    }
    tools = [];
    expect(await refused('--mcp', `${upstream.url}/raw`)).toContain('lists no tools');
    tools = [{ name: 'a b' }];
    expect(await refused('--mcp', `${upstream.url}/raw`)).toMatch(/None of the 1 tools .*a b/);
  });

  test('a program that is not there, ends, or is no server', async () => {
    expect(await refused('--mcp', 'no-such-program x')).toMatch(/cannot be read: .*no-such-program.*ENOENT/);
    expect(await refused('--mcp', `node ${odd} crash`)).toMatch(/exit code 3; it said: no database/);
    expect(await refused('--mcp', '--', 'node', '-e', 'console.log("hello")')).toContain('cannot be read');
  });

  test('wrong options', async () => {
    expect(await refused('--mcp')).toContain('Name the MCP server');
    expect(await refused('--mcp', 'https://host/mcp', '--', 'node')).toContain('Name one server');
    expect(await refused('--mcp', 'sh -c "id"')).toContain('goes after --');
    expect(await refused('--mcp', 'https://user:pass@host/mcp')).toContain('without a key');
    expect(await refused('--mcp', 'https://host/mcp', '--env', 'X')).toContain('--env is for a program');
    expect(await refused('--mcp', 'node x', '--key-env', 'X')).toContain('--env NAME');
    expect(await refused('--mcp', 'node x', '--env', 'TOKEN=abc')).not.toContain('abc');
    expect(await refused('--mcp', 'node x', '--env', 'UNSET_TOKEN')).toContain('UNSET_TOKEN is not set here');
    expect(await refused('--mcp', 'node x', '--env', 'NOT_SET_HERE')).toContain('NOT_SET_HERE is not set');
    expect(await refused('--mcp', 'https://host/mcp', '--name', 'v1')).toContain("gateway's own");
    expect(await refused('--mcp', 'https://host/mcp', '--diff')).toContain('--diff');
    expect(await refused('node', 'x')).toContain('goes with --mcp only');
    expect(await refused('--key-env', 'X', '--upstream', 'http://127.0.0.1:1')).toContain('goes with --mcp only');
  });
});

test('what is there is not overwritten, without --force', async () => {
  tools = [{ name: 'get_note', annotations: { readOnlyHint: true } }];
  expect((await raw()).code).toBe(0);
  expect(await raw()).toMatchObject({ code: 2, err: expect.stringContaining('gateway.yaml is there already') });
  rmSync('gateway.yaml');
  rmSync(join('policies', 'first.yaml'));
  expect(await raw()).toMatchObject({ code: 2, err: expect.stringContaining('mcp/shop.lock.json is there already') });
  expect((await raw('--force')).code).toBe(0);
  // Another folder of the same place.
  expect((await raw('--dir', 'other')).code).toBe(0);
  expect(JSON.parse((await svc('config', 'check', 'other/gateway.yaml', '--json')).out)).toEqual(CLEAN);
});
