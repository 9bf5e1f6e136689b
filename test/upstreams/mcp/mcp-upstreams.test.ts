import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { Pool } from 'undici';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isJsonObject, type Json } from '../../../src/json/value.ts';
import { createMcpUpstreams } from '../../../src/upstreams/mcp/mcp-upstreams.ts';
import { PipeServer } from '../../../src/upstreams/mcp/pipe/pipe-server.ts';
import type { McpUpstreamSettings } from '../../../src/upstreams/mcp/settings.ts';
import { OWNER_VARIABLE } from '../../../src/upstreams/mcp/stdio/keeper.ts';
import { initialize } from '../mcp-stdio/ask.ts';
import { makeDispatch, makeTool } from '../tool.ts';

const LIMITS = { responseBytes: 10_000, responseKeptBytes: 1_000 };

let server: Server;
let settings: McpUpstreamSettings;
let asked: string[];
beforeEach(async () => {
  asked = [];
  server = createServer((request, response) => {
    void (async () => {
      const body = request.method === 'POST' ? ((await json(request)) as Json) : {};
      const { method = '', id = null } = isJsonObject(body) ? body : {};
      asked.push(`${request.headers['user-agent'] ?? ''}: ${typeof method === 'string' ? method : ''}`);
      // It never answers a call.
      if (method === 'tools/call') return;
      const result = method === 'tools/list' ? { tools: [] } : { protocolVersion: '2025-06-18', capabilities: {} };
      response.writeHead(id === null ? 202 : 200, { 'content-type': 'application/json' });
      response.end(id === null ? '' : JSON.stringify({ jsonrpc: '2.0', id, result }));
    })();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const mcp = { path: '/mcp', allow: [] };
  settings = { id: 'crm', url, timeoutMs: 1_000, network: 'any', credentials: null, mcp };
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

/** How many connections to it are open. */
const open = () => new Promise<number>((resolve) => server.getConnections((_error, count) => resolve(count)));

/** The servers of a configuration, and of which of them something was seen. */
function made(...configured: McpUpstreamSettings[]) {
  const seen: string[] = [];
  const upstreams = createMcpUpstreams(
    configured,
    LIMITS,
    () => 0,
    (id) => void seen.push(id),
    () => false,
  );
  const crm = () => {
    const found = upstreams.server('crm');
    if (found === null) throw new Error('there is no such server');
    return found;
  };
  return { upstreams, crm, seen };
}

const KEY = { header: 'X-Key', value: 'one' };
const CHILD = { command: 'server', args: ['one'], env: {}, cwd: null, sessions: 1, idleMs: 60_000 };
const TLS = { ca: null, client: null, serverName: null, minVersion: 'TLSv1.2' } as const;

test.each<readonly [string, Partial<McpUpstreamSettings>, Partial<McpUpstreamSettings>]>([
  ['address', {}, { url: 'http://127.0.0.1:1' }],
  ['path', {}, { mcp: { path: '/other', allow: [] } }],
  ['network', {}, { network: 'public' }],
  ['credentials', { credentials: KEY }, { credentials: { ...KEY, value: 'two' } }],
  ['certificates', { tls: TLS }, { tls: { ...TLS, minVersion: 'TLSv1.3' } }],
  [
    'program',
    { mcp: { path: '/', allow: [], child: CHILD } },
    { mcp: { path: '/', allow: [], child: { ...CHILD, args: ['two'] } } },
  ],
  [
    'transport',
    { mcp: { path: '/', allow: [], sse: { sessions: 1, idleMs: 60_000 } } },
    { mcp: { path: '/', allow: [], sse: { sessions: 2, idleMs: 60_000 } } },
  ],
])(
  'a server with another %s is another: nothing that was opened for the one before goes on',
  async (_what, one, two) => {
    const { upstreams, crm } = made({ ...settings, ...one });
    const before = crm();
    const same = structuredClone({ ...settings, ...one, timeoutMs: 2_000 });
    upstreams.update([same], { ...LIMITS, responseBytes: 5 });
    const { through, session, agentSessions, pins } = before;
    // What is only about calls leaves connections and sessions as they are.
    expect(crm()).toMatchObject({ settings: { timeoutMs: 2_000 }, limits: { responseBytes: 5 } });
    expect([crm().through, crm().session, crm().agentSessions, crm().pins]).toEqual([
      through,
      session,
      agentSessions,
      pins,
    ]);
    expect(crm().through).toBe(through);
    upstreams.update([{ ...settings, ...one, ...two }], LIMITS);
    expect(crm().through).not.toBe(through);
    expect(crm().session).not.toBe(session);
    expect(crm().agentSessions).not.toBe(agentSessions);
    expect(crm().pins).not.toBe(pins);
    await upstreams.close();
  },
);

test('a server is looked at when it is configured; a program is not started for that', async () => {
  const { upstreams, crm, seen } = made(settings, {
    ...settings,
    id: 'tool',
    mcp: { path: '/', allow: [], child: CHILD },
  });
  await expect.poll(() => asked).toContain('svc-gateway (pins): tools/list');
  await expect.poll(() => seen.filter((id) => id === 'crm').length).toBe(2);
  const program = upstreams.server('tool')?.through;
  if (!(program instanceof PipeServer)) throw new Error('it is no program');
  expect([program.report(), program.pids().size]).toEqual([{ running: 0, failures: 0, lastEnd: null }, 0]);
  expect(seen).toContain('tool');
  expect(crm().pins.failure).toBeNull();
  await upstreams.close();
});

test('connections to a server that is configured no more are closed', async () => {
  const { upstreams, crm } = made(settings);
  await expect.poll(() => asked).toContain('svc-gateway (pins): tools/list');
  expect(await open()).toBeGreaterThan(0);
  const { through } = crm();
  if (!(through instanceof Pool)) throw new Error('it is spoken to over connections');
  upstreams.update([], LIMITS);
  expect(upstreams.server('crm')).toBeNull();
  expect(through.closed).toBe(true);
  await expect.poll(open).toBe(0);
  await upstreams.close();
});

test('at the end what still runs is broken off, and nobody knows what became of it', async () => {
  const { upstreams } = made(settings);
  const pay = { kind: 'mcp', name: 'pay', pinned: {}, isError: 'unknown', onClientClose: 'finish' } as const;
  const tool = { ...makeTool({ upstream: 'crm', timeoutMs: 60_000 }), call: pay };
  const sent = upstreams.send(makeDispatch({ tool }));
  await expect.poll(() => asked.some((line) => line.endsWith('tools/call'))).toBe(true);
  await upstreams.close();
  expect(await sent).toMatchObject({ kind: 'unknown', evidence: { code: 'reset' } });
  await expect.poll(open).toBe(0);
  expect(upstreams.send(makeDispatch({ tool }))).toBeNull();
}, 20_000);

/** Processes that end the programs of servers with this process. */
function keepers(): readonly string[] {
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').trim().split(' ');
  return children.filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(OWNER_VARIABLE);
    } catch {
      return false;
    }
  });
}

test('with the last program ends the process that was to end it', async () => {
  const before = keepers();
  const answer = '{"jsonrpc":"2.0","id":0,"result":{}}';
  const child = { ...CHILD, command: '/bin/sh', args: ['-c', `read -r line; echo '${answer}'; read -r line`] };
  const { upstreams, crm } = made({ ...settings, mcp: { path: '/', allow: [], child } });
  const { through } = crm();
  if (!(through instanceof PipeServer)) throw new Error('it is no program');
  await initialize(through);
  const kept = () => keepers().filter((pid) => !before.includes(pid));
  await expect.poll(kept).toHaveLength(1);
  await upstreams.close();
  await expect.poll(kept).toEqual([]);
});
