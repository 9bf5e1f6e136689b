import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkConfiguration, loadConfiguration } from '../../src/config/load.ts';
import { pinnedCall } from '../../src/effects/model/tool.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { lockOf } from '../system/mcp/lenient-server.ts';

const home = process.cwd();
let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-mcp-servers-'));
  process.chdir(folder);
});
afterAll(() => {
  process.chdir(home);
  rmSync(folder, { recursive: true });
});

const schema = { type: 'object', properties: { order: { type: 'object' }, n: { type: 'integer' } } };
const PINNED: readonly JsonObject[] = [
  { name: 'look', inputSchema: schema, annotations: { readOnlyHint: true } },
  { name: 'put', inputSchema: schema, annotations: { idempotentHint: true } },
  { name: 'refund', inputSchema: schema },
];
const LOCK = lockOf('crm', PINNED, { server: 'crm' });
const AT = 'url: "https://mcp.example.com/mcp"';

/** A configuration with one server, and what its lock file pins. */
function written(
  mcp: string,
  more: { readonly upstream?: string; readonly tools?: string; readonly lock?: string } = {},
): string {
  const lock = more.lock ?? 'mcp/crm.lock.json';
  mkdirSync(dirname(join(folder, lock)), { recursive: true });
  writeFileSync(lock, LOCK);
  const upstream = `{ id: crm, mcp: { ${mcp} }${more.upstream === undefined ? '' : `, ${more.upstream}`} }`;
  writeFileSync('gateway.yaml', `users: []\nupstreams:\n  - ${upstream}\n${more.tools ?? ''}`);
  return join(folder, 'gateway.yaml');
}

async function loaded(mcp: string, more: Parameters<typeof written>[1] = {}, environment: Record<string, string> = {}) {
  const { configuration } = await loadConfiguration(written(mcp, more), { environment });
  const [upstream] = configuration.upstreams;
  const tool = (name: string) => {
    const found = configuration.tools.find((one) => one.name === `crm.${name}`);
    const call = found === undefined ? null : pinnedCall(found);
    if (found === undefined || call === null) throw new Error(`there is no tool ${name}`);
    return { ...found, call };
  };
  return { mcp: upstream?.mcp, tool };
}

async function faults(...of: Parameters<typeof written>): Promise<readonly string[]> {
  const { findings } = await checkConfiguration(written(...of), { environment: {}, color: false });
  return findings.filter(({ severity }) => severity === 'error').map(({ code, message }) => `${code} ${message}`);
}

describe('a server of MCP in the configuration', () => {
  test('has its pins in mcp/ID.lock.json, or where it says', async () => {
    expect((await loaded(AT)).mcp?.words).toEqual({ server: 'crm', instructions: null });
    rmSync('mcp', { recursive: true });
    expect((await loaded(`${AT}, pins: other.json`, { lock: 'other.json' })).tool('refund').kind).toBe('write');
    rmSync('other.json');
    const file = written(AT, { lock: 'other.json' });
    const { findings } = await checkConfiguration(file, { environment: {}, color: false });
    expect(findings).toContainEqual(expect.objectContaining({ code: 'bad_pins', severity: 'error' }));
  });

  test('has a lock file of 16 MiB at most, of which no more is read', async () => {
    const MiB = 1024 * 1024;
    const file = written(AT);
    const padded = (bytes: number): void => writeFileSync('mcp/crm.lock.json', LOCK.padEnd(bytes));
    padded(16 * MiB);
    expect((await loadConfiguration(file)).configuration.tools).toHaveLength(PINNED.length);
    padded(16 * MiB + 1);
    const { findings } = await checkConfiguration(file, { environment: {}, color: false });
    expect(findings).toContainEqual(
      expect.objectContaining({ code: 'bad_pins', message: 'mcp/crm.lock.json is too long for a lock file' }),
    );
  });

  test('that is a program, or of the transport sse, has 32 sessions, which end unused after half an hour, unless it says otherwise', async () => {
    for (const [how, of] of [
      ['command: [node, server.js]', 'child'],
      [`${AT}, transport: sse`, 'sse'],
    ] as const) {
      expect((await loaded(how)).mcp?.[of]).toMatchObject({ sessions: 32, idleMs: 1_800_000 });
      expect((await loaded(`${how}, sessions: 2, idle: 5s`)).mcp?.[of]).toMatchObject({ sessions: 2, idleMs: 5_000 });
    }
    expect((await loaded(AT)).mcp).toMatchObject({ child: null, sse: null });
  });

  test('that is a program gets the variables that env names and no others', async () => {
    const environment = { HOME: '/home/of', SECRET: 'canary', TOKEN: 't' };
    const { mcp } = await loaded(
      'command: [node, server.js, a], env: [HOME, TOKEN, ABSENT], cwd: /srv',
      {},
      environment,
    );
    expect(mcp?.child).toMatchObject({ command: 'node', args: ['server.js', 'a'], cwd: '/srv' });
    expect(mcp?.child?.env).toEqual({ HOME: '/home/of', TOKEN: 't' });
  });

  test.each([
    ['an address', 'url: "https://x.example/mcp"', {}],
    ['a key', '', { upstream: 'credentials: { header: authorization, value: x }' }],
    ['certificates', '', { upstream: 'tls: { min_version: TLSv1.3 }' }],
    ['the transport of an address', 'transport: sse', {}],
  ])('that is a program has no %s', async (_what, more, upstream) => {
    const mcp = ['command: [node]', more].filter((part) => part !== '').join(', ');
    expect(await faults(mcp, upstream)).toEqual([expect.stringMatching(/^bad_url The upstream 'crm' has a command/)]);
  });

  test('is at the path and the query of its url, lets methods through that it names, and its calls are of its env', async () => {
    const { mcp, tool } = await loaded('url: "https://mcp.example.com/a/mcp?b=c", allow: [ext/list]', {
      upstream: 'env: staging',
    });
    expect(mcp).toMatchObject({ path: '/a/mcp?b=c', allow: ['ext/list'] });
    expect(tool('refund').env).toBe('staging');
    expect((await loaded(AT)).tool('refund').env).toBeNull();
  });

  test('has a url with neither key nor fragment', async () => {
    for (const url of ['https://u:p@h.example/mcp', 'https://h.example/mcp#a', 'ftp://h.example', 'h.example/mcp'])
      expect(await faults(`url: "${url}"`), url).toEqual([expect.stringMatching(/^bad_url /)]);
    expect(await faults('sessions: 2')).toEqual([expect.stringMatching(/^missing_field 'url' is missing/)]);
  });

  test('has its tools in the lock file alone, and settings for those that stand there', async () => {
    const declared = `tools: [{ name: crm.more, upstream: crm, kind: read, request: { method: GET, path: / } }]\n`;
    expect(await faults(AT, { tools: declared })).toContainEqual(expect.stringMatching(/^mcp_tool_declared /));
    expect(await faults(`${AT}, tools: [{ name: refnd }]`)).toContainEqual(expect.stringContaining("'refnd'"));
    const twice = await faults(`${AT}, tools: [{ name: refund, risk: low }, { name: refund, risk: high }]`);
    expect(twice).toEqual([expect.stringMatching(/^duplicate_tool /)]);
    expect(await faults(`${AT}, tools: [{ name: refund, key_from: orders }]`)).not.toEqual([]);
    expect(await faults(`${AT}, tools: [{ name: refund, key_from: order.id }]`)).toEqual([]);
  });
});

describe('a pinned tool', () => {
  test('is a write, unless trusted annotations or the configuration say that it reads', async () => {
    const kinds = async (mcp: string) => {
      const { tool } = await loaded(mcp);
      return ['look', 'put', 'refund'].map((name) => tool(name).kind);
    };
    expect(await kinds(AT)).toEqual(['write', 'write', 'write']);
    expect(await kinds(`${AT}, trust_annotations: true`)).toEqual(['read', 'write', 'write']);
    expect(await kinds(`${AT}, tools: [{ name: put, kind: read }]`)).toEqual(['write', 'read', 'write']);
    const other = `${AT}, trust_annotations: true, tools: [{ name: look, kind: write }]`;
    expect(await kinds(other)).toEqual(['write', 'write', 'write']);
  });

  test('is not done again for two minutes, but for reads, what trusted annotations call idempotent, and what says otherwise', async () => {
    const windows = async (mcp: string) => {
      const { tool } = await loaded(mcp);
      return ['look', 'put', 'refund'].map((name) => tool(name).call.repeatMs);
    };
    expect(await windows(AT)).toEqual([120_000, 120_000, 120_000]);
    expect(await windows(`${AT}, trust_annotations: true`)).toEqual([0, 0, 120_000]);
    const stated =
      'tools: [{ name: look, kind: read }, { name: put, repeat_window: 0s }, { name: refund, repeat_window: 1h }]';
    expect(await windows(`${AT}, ${stated}`)).toEqual([0, 0, 3_600_000]);
  });

  test('whose error leaves its outcome unknown, and whose client may go, unless it says otherwise', async () => {
    const stated = 'tools: [{ name: put, is_error: failed, on_client_close: abort }, { name: refund, risk: high }]';
    const { tool } = await loaded(`${AT}, ${stated}`);
    expect(tool('put').call).toMatchObject({ isError: 'failed', onClientClose: 'abort' });
    for (const name of ['refund', 'look'])
      expect(tool(name).call).toMatchObject({ isError: 'unknown', onClientClose: 'finish' });
  });

  /** What the configuration says where the lock file pins these, of this server. */
  async function pinning(tools: readonly JsonObject[], of = 'crm') {
    const file = written(AT);
    writeFileSync('mcp/crm.lock.json', lockOf(of, tools, { server: 'crm' }));
    const { findings } = await checkConfiguration(file, { environment: {}, color: false });
    const said = findings.map(({ severity, code, message }) => `${severity} ${code} ${message}`);
    const isSound = said.every((one) => one.startsWith('warning'));
    return { said, tools: isSound ? (await loadConfiguration(file)).configuration.tools : [] };
  }

  test('is one of its own server: a lock file of another is none', async () => {
    expect((await pinning(PINNED, 'shop')).said).toEqual([
      "error bad_pins mcp/crm.lock.json holds the pins of 'shop', not of 'crm'",
    ]);
  });

  test('has the title that its server gives it, wherever that stands; else its name', async () => {
    const { tools } = await pinning([
      { name: 'a', title: 'Its title', annotations: { title: 'Another' } },
      { name: 'b', annotations: { title: 'Of the annotations' } },
      { name: 'c', title: '' },
    ]);
    expect(tools.map(({ title }) => title)).toEqual(['Its title', 'Of the annotations', 'c']);
  });

  test('is left out where no policy could name it, and its arguments are the server’s to check where they cannot be checked', async () => {
    const [longest, long] = ['n'.repeat(124), 'n'.repeat(125)];
    const unresolved = { type: 'object', properties: { a: { $ref: '#/$defs/nowhere' } } };
    const { said, tools } = await pinning([
      { name: longest },
      { name: long },
      { name: 'odd', inputSchema: unresolved },
    ]);
    expect(tools.map(({ name, paramsSchema }) => [name, paramsSchema])).toEqual([
      [`crm.${longest}`, null],
      ['crm.odd', null],
    ]);
    expect(said).toContainEqual(`warning tool_name The pinned tool '${long}' cannot be called: it has no usable name`);
    expect(said).toContainEqual(expect.stringMatching(/^warning schema_not_checked The arguments of 'odd'/));
  });

  test('has no argument _meta beside members of it that the server needs, and no probe that changes something', async () => {
    const file = written(`${AT}, meta: [a.example/tenant]`);
    const own = { name: 'a', inputSchema: { type: 'object', properties: { _meta: { type: 'object' } } } };
    writeFileSync('mcp/crm.lock.json', lockOf('crm', [own], { server: 'crm' }));
    const { findings } = await checkConfiguration(file, { environment: {}, color: false });
    expect(findings).toMatchObject([{ code: 'bad_pins', message: expect.stringContaining('has an argument _meta') }]);
    const asks = (tool: string) => `probe: { tool: ${tool}, happened: { a: 1 }, accept_state_evidence: true }`;
    expect(await faults(`${AT}, tools: [{ name: refund, ${asks('put')} }]`)).toContainEqual(
      'bad_probe crm.put is no read: a probe changes nothing',
    );
    const read = `tools: [{ name: look, kind: read }, { name: put, kind: read, ${asks('look')} }]`;
    expect(await faults(`${AT}, ${read}`)).toContainEqual('bad_probe A read leaves nothing to find out');
  });

  test('may take as long as its server for an answer, unless it says otherwise', async () => {
    const stated = 'tools: [{ name: refund, timeout: 3s }]';
    const { tool } = await loaded(`${AT}, ${stated}`, { upstream: 'timeout: 7s' });
    expect(['look', 'put', 'refund'].map((name) => tool(name).timeoutMs)).toEqual([7_000, 7_000, 3_000]);
  });

  test('is another one, about which people are asked anew, where it is sent in another way; not where its key is renewed', async () => {
    const digest = async (mcp: string, upstream = '', environment: Record<string, string> = {}) =>
      (await loaded(mcp, upstream === '' ? {} : { upstream }, environment)).tool('refund').digest;
    const keyed = (header: string, value: string) => digest(AT, `credentials: { header: ${header}, value: ${value} }`);
    const program = (mcp: string, environment = {}) => digest(mcp, '', environment);
    const others = [
      await digest(AT),
      await digest('url: "https://other.example/mcp"'),
      await digest('url: "https://mcp.example.com/other"'),
      await digest(`${AT}, meta: [a.example/tenant]`),
      await keyed('authorization', 'one'),
      await keyed('x-key', 'one'),
      await program('command: [node]'),
      await program('command: [node, a]'),
      await program('command: [node], cwd: /srv'),
      await program('command: [node], env: [TOKEN]', { TOKEN: 'one' }),
    ];
    expect(new Set(others).size).toBe(others.length);
    expect(await keyed('authorization', 'two')).toBe(await keyed('authorization', 'one'));
    expect(await program('command: [node], env: [TOKEN]', { TOKEN: 'two' })).toBe(others.at(-1));
  });

  test('has the members of _meta that all tools of the server need, and its own', async () => {
    const { tool } = await loaded(`${AT}, meta: [a.example/all], tools: [{ name: put, meta: [a.example/own] }]`);
    expect(tool('refund').call.meta).toEqual(['a.example/all']);
    expect(tool('put').call.meta).toEqual(['a.example/all', 'a.example/own']);
    const { _meta: meta } = Object(tool('put').paramsSchema?.['properties']);
    expect(meta).toMatchObject({ additionalProperties: false, properties: { 'a.example/own': {} } });
    // Names of the protocol and of the gateway are nobody else's.
    for (const name of ['progressToken', 'traceparent', 'io.modelcontextprotocol/x', 'dev.svc-gateway/idempotency-key'])
      expect(await faults(`${AT}, meta: [${name}]`), name).not.toEqual([]);
  });
});
