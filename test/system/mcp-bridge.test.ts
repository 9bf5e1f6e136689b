import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client as NewClient } from '@modelcontextprotocol/client';
import { StdioClientTransport as NewTransport } from '@modelcontextprotocol/client/stdio';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { rawBridge, type RawBridge, SVC } from './mcp/raw-bridge.ts';
import { GOOD_KEY, type McpUpstream, startMcpUpstream } from './mcp/upstream.ts';

let upstream: McpUpstream;
let folder: string;
const running: RawBridge[] = [];

beforeAll(async () => {
  upstream = await startMcpUpstream();
  folder = mkdtempSync(join(tmpdir(), 'svc-bridge-'));
});
beforeEach(() => {
  upstream.seen.length = 0;
});
afterEach(() => {
  for (const bridge of running.splice(0)) bridge.child.kill('SIGKILL');
});
afterAll(async () => {
  await upstream.stop();
  rmSync(folder, { recursive: true, force: true });
});

const command = (path: string) => ({
  command: process.execPath,
  args: [SVC, 'mcp-bridge', '--url', upstream.url + path],
  env: { SVC_API_KEY: GOOD_KEY },
});

function bridgeTo(path: string, key = GOOD_KEY): RawBridge {
  const bridge = rawBridge(['--url', upstream.url + path], { SVC_API_KEY: key });
  running.push(bridge);
  return bridge;
}

const INITIALIZE = {
  protocolVersion: '2025-11-25',
  capabilities: {},
  clientInfo: { name: 'raw', version: '1' },
};

async function initialized(bridge: RawBridge): Promise<void> {
  await bridge.ask(0, 'initialize', INITIALIZE);
  bridge.write({ jsonrpc: '2.0', method: 'notifications/initialized' });
}

describe('official clients', () => {
  test('SDK 1.x: tools, a question of the server in mid-call, its own stream, and the end of the session', async () => {
    const client = new OldClient({ name: 'old', version: '1' }, { capabilities: { elicitation: {} } });
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { name: 'Ada' } }));
    const changed = new Promise((resolve) => client.setNotificationHandler(ToolListChangedNotificationSchema, resolve));
    await client.connect(new OldTransport(command('/old')));

    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(['add', 'count', 'ask']);
    expect(await client.callTool({ name: 'add', arguments: { a: 2, b: 3 } })).toMatchObject({
      content: [{ text: '5' }],
    });
    expect(await client.callTool({ name: 'ask', arguments: {} })).toMatchObject({ content: [{ text: 'accept Ada' }] });

    await expect.poll(() => upstream.seen.some(({ method }) => method === 'GET')).toBe(true);
    await upstream.announce();
    await changed;

    expect(upstream.sessions.size).toBe(1);
    await client.close();
    await expect.poll(() => upstream.sessions.size).toBe(0);
    const versions = upstream.seen.slice(1).map(({ headers }) => headers['mcp-protocol-version']);
    expect(new Set(versions)).toEqual(new Set(['2025-11-25']));
    // One stream, asked for once.
    expect(upstream.seen.filter(({ method }) => method === 'GET').length).toBe(1);
  });

  test('SDK 2.x, the stateless era: headers that repeat the body, also arguments; subscriptions', async () => {
    const client = new NewClient(
      { name: 'new', version: '1' },
      { versionNegotiation: { mode: { pin: '2026-07-28' } } },
    );
    await client.connect(new NewTransport(command('/new')));

    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(['add', 'routed']);
    expect(await client.callTool({ name: 'add', arguments: { a: 2, b: 3 } })).toMatchObject({
      content: [{ text: '5' }],
    });
    expect(await client.callTool({ name: 'routed', arguments: { region: 'Zürich' } })).toMatchObject({
      content: [{ text: 'in Zürich' }],
    });
    const call = upstream.seen.filter(({ rpc }) => rpc === 'tools/call').at(-1);
    expect(call?.headers).toMatchObject({
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'routed',
      'mcp-param-region': '=?base64?WsO8cmljaA==?=',
    });

    const changed = new Promise<void>((resolve) =>
      client.setNotificationHandler('notifications/tools/list_changed', () => resolve()),
    );
    const subscription = await client.listen({ toolsListChanged: true });
    await upstream.announce();
    await changed;
    await subscription.close();
    await client.close();
    expect(upstream.seen.filter(({ method }) => method !== 'POST')).toEqual([]);
  });

  test('SDK 2.x, which finds out the era by itself', async () => {
    for (const [path, era] of [
      ['/new', 'modern'],
      ['/old', 'legacy'],
    ] as const) {
      const client = new NewClient({ name: 'new', version: '1' }, { versionNegotiation: { mode: 'auto' } });
      await client.connect(new NewTransport(command(path)));
      expect(client.getProtocolEra()).toBe(era);
      expect(await client.callTool({ name: 'add', arguments: { a: 1, b: 1 } })).toMatchObject({
        content: [{ text: '2' }],
      });
      await client.close();
    }
    await expect.poll(() => upstream.sessions.size).toBe(0);
  });
});

describe('the key', () => {
  test('stands in the arguments of no process', async () => {
    const bridge = bridgeTo('/old');
    await initialized(bridge);
    const lines = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map((pid) => {
        try {
          return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
        } catch {
          return '';
        }
      });
    expect(lines.filter((line) => line.includes('mcp-bridge')).length).toBeGreaterThan(0);
    expect(lines.filter((line) => line.includes(GOOD_KEY))).toEqual([]);
  });

  test('is refused: 401 and 403 are errors with a hint, and the key stands in none', async () => {
    const wrong = bridgeTo('/old', 'svc_agent_wrong');
    const answer = await wrong.ask(1, 'initialize', INITIALIZE);
    expect(answer).toMatchObject({
      id: 1,
      error: {
        code: -32_001,
        message: expect.stringContaining('refused the key (status 401): No such key.'),
        data: {
          http_status: 401,
          code: 'unknown_key',
          hint: expect.stringContaining('SVC_API_KEY'),
          did_it_happen: 'no',
        },
      },
    });
    const other = bridgeTo('/old', 'svc_agent_of-another');
    expect((await other.ask(1, 'initialize', INITIALIZE)).error).toMatchObject({
      code: -32_001,
      data: { http_status: 403, hint: expect.stringContaining('scopes') },
    });
    expect(JSON.stringify(answer) + wrong.said() + other.said()).not.toMatch(/svc_agent_/);
    expect(await wrong.end()).toMatchObject({ code: 0 });
  });

  test('in a file is read again when it is refused', async () => {
    const file = join(folder, 'key');
    writeFileSync(file, 'svc_agent_old\n');
    const bridge = rawBridge(['--url', `${upstream.url}/old`, '--key-file', file], {});
    running.push(bridge);
    expect((await bridge.ask(1, 'initialize', INITIALIZE)).error?.data?.['hint']).toContain(file);
    writeFileSync(file, `${GOOD_KEY}\n`);
    expect((await bridge.ask(2, 'initialize', INITIALIZE)).result).toMatchObject({ protocolVersion: '2025-11-25' });
  });

  test.each([
    ['no key', ['--url', 'http://127.0.0.1:1/'], {}, 'The variable SVC_API_KEY holds no key.', 2],
    ['a key in place of a name', ['--url', 'http://127.0.0.1:1/', '--key-env', GOOD_KEY], {}, 'not the key', 64],
    ['a key in the URL', ['--url', 'http://127.0.0.1:1/?api_key=svc_x'], {}, 'without a key', 64],
    ['a key of two lines', ['--url', 'http://127.0.0.1:1/'], { SVC_API_KEY: 'a\nb' }, 'something that is no key', 2],
  ])('%s: nothing starts, and standard output stays empty', async (_what, args, env, message, code) => {
    const bridge = rawBridge(args, env);
    expect(await bridge.end()).toEqual({ code, left: [] });
    expect(bridge.said()).toContain(message);
    expect(bridge.said()).not.toContain(GOOD_KEY);
  });
});

describe('connections', () => {
  test('a server that was away and has forgotten the session: the client does not notice', async () => {
    const bridge = bridgeTo('/old');
    await initialized(bridge);
    await upstream.stop();
    upstream.forget();
    upstream.seen.length = 0;
    const asked = bridge.ask(1, 'tools/call', { name: 'add', arguments: { a: 4, b: 4 } });
    await expect.poll(() => bridge.child.exitCode).toBe(null);
    await upstream.start();
    expect((await asked).result).toMatchObject({ content: [{ text: '8' }] });
    bridge.write({
      jsonrpc: '2.0',
      id: 2,
      method: 'tools/call',
      params: { name: 'count', _meta: { progressToken: 't' } },
    });
    const lines = [await bridge.next(), await bridge.next(), await bridge.next(), await bridge.next()];
    expect(lines.map(({ method, id }) => method ?? id)).toEqual([...Array(3).fill('notifications/progress'), 2]);
    expect(upstream.seen.filter(({ rpc }) => rpc === 'initialize').length).toBe(1);
    expect(upstream.sessions.size).toBe(1);
    await bridge.end();
    expect(upstream.sessions.size).toBe(0);
  });

  test('a connection that breaks in mid-call: one answer, which says what is not known, and no second call', async () => {
    upstream.raw = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(': wait\n\n', () => response.destroy());
    };
    const bridge = bridgeTo('/raw');
    const answer = await bridge.ask(1, 'tools/call', { name: 'pay' });
    expect(answer.error).toMatchObject({ code: -32_003, data: { did_it_happen: 'maybe' } });
    upstream.raw = (request) => request.socket.destroy();
    expect((await bridge.ask(2, 'tools/call', { name: 'pay' })).error).toMatchObject({
      code: -32_003,
      data: { did_it_happen: 'maybe' },
    });
    expect(upstream.seen.filter(({ path }) => path === '/raw').length).toBe(2);
  });

  test('a stream that can be continued is continued where it broke', async () => {
    upstream.raw = (request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      if (request.method === 'POST') {
        response.write('id: 7\nretry: 10\ndata:\n\n', () => response.destroy());
        return;
      }
      response.end(
        `id: 8\ndata: {"jsonrpc":"2.0",\ndata: "id":1,"result":{"after":"${String(request.headers['last-event-id'])}"}}\n\n`,
      );
    };
    expect((await bridgeTo('/raw').ask(1, 'tools/call', { name: 'pay' })).result).toEqual({ after: '7' });
    expect(upstream.seen.map(({ method }) => method)).toEqual(['POST', 'GET']);
  });

  test('what nobody listens to was not sent', async () => {
    // The end of the input ends the attempts to reach it.
    const bridge = rawBridge(['--url', 'http://127.0.0.1:9/mcp'], { SVC_API_KEY: GOOD_KEY });
    bridge.write({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: {} });
    const { code, left } = await bridge.end();
    expect(code).toBe(0);
    expect(left.map((line) => JSON.parse(line))).toMatchObject([
      {
        id: 1,
        error: { code: -32_002, data: { did_it_happen: 'maybe', hint: expect.stringContaining('may have run') } },
      },
    ]);
  });
});

describe('a host', () => {
  test('that closes all but the input, and one that says stop in mid-call: nothing stays, and the session has ended', async () => {
    const silent = bridgeTo('/old');
    const deaf = bridgeTo('/old');
    await Promise.all([initialized(silent), initialized(deaf)]);
    expect(upstream.sessions.size).toBe(2);
    deaf.child.stderr.destroy();
    deaf.child.stdout.destroy();
    // Words for people, and then an answer: nobody reads either.
    deaf.write({ jsonrpc: '2.0', id: 1, result: { nobody: 'asked' } });
    deaf.write({ jsonrpc: '2.0', id: 2, method: 'ping' });
    silent.write({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'ask' } });
    await expect.poll(() => upstream.seen.filter(({ rpc }) => rpc === 'tools/call').length).toBe(1);
    silent.child.kill('SIGTERM');
    await expect.poll(() => [silent.child.exitCode, deaf.child.exitCode]).toEqual([0, 0]);
    expect(upstream.sessions.size).toBe(0);
  });
});

describe('standard output is the protocol and nothing else', () => {
  test('bad lines get errors; answers that are none of MCP, too', async () => {
    upstream.raw = (_request, response, body) => {
      const { id } = JSON.parse(body) as { id: number };
      const pages: Record<number, () => void> = {
        1: () => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>\n</html>'),
        2: () => response.writeHead(502, { 'content-type': 'text/html' }).end('<html>\n</html>'),
        3: () => response.writeHead(200, { 'content-type': 'application/json' }).end('not json'),
        4: () => response.writeHead(302, { location: 'http://127.0.0.1:9/' }).end(),
        5: () =>
          response
            .writeHead(400, { 'content-type': 'application/json' })
            .end('{"jsonrpc":"2.0","id":5,"error":{"code":-32020,"message":"header"}}'),
        6: () => response.writeHead(429, { 'retry-after': '7' }).end('{"code":"busy","detail":"Too many."}'),
        7: () => {
          response.writeHead(200, { 'content-type': 'text/event-stream' });
          response.end(
            'data: no\n\ndata: {"jsonrpc":"2.0","id":99,"result":{}}\n\ndata: {"jsonrpc":"2.0","id":7,"result":{}}\n\n',
          );
        },
      };
      pages[id]?.();
    };
    const bridge = bridgeTo('/raw');
    for (const [line, code] of [
      ['{', -32_700],
      ['[]', -32_600],
      ['{"id":{},"method":"x"}', -32_600],
      ['{"id":1}', -32_600],
      ['x'.repeat(17 * 1024 * 1024), -32_600],
    ] as const) {
      bridge.write(line);
      expect(await bridge.next()).toMatchObject({ id: null, error: { code } });
    }
    const html = await bridge.ask(1, 'ping');
    expect(html.error).toMatchObject({ code: -32_005, data: { hint: expect.stringContaining('--url') } });
    expect((await bridge.ask(2, 'ping')).error).toMatchObject({ code: -32_005, data: { http_status: 502 } });
    expect((await bridge.ask(3, 'ping')).error).toMatchObject({ code: -32_005 });
    expect((await bridge.ask(4, 'ping')).error).toMatchObject({ code: -32_005, data: { http_status: 302 } });
    expect((await bridge.ask(5, 'ping')).error).toEqual({ code: -32_020, message: 'header' });
    expect((await bridge.ask(6, 'ping')).error).toMatchObject({ data: { code: 'busy', retry_after: '7' } });
    bridge.write({ jsonrpc: '2.0', id: 7, method: 'ping' });
    // Neither what is no message nor an answer that nobody waits for.
    expect(await bridge.next()).toEqual({ jsonrpc: '2.0', id: 7, result: {} });
    expect(await bridge.end()).toEqual({ code: 0, left: [] });
  });

  test('while the client does not read, the server is not read either', async () => {
    const line = `data: ${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { data: 'x'.repeat(65_000) } })}\n\n`;
    let sent = 0;
    upstream.raw = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const more = (): void => {
        while (response.write(line)) sent += line.length;
        sent += line.length;
        response.once('drain', more);
      };
      more();
    };
    const bridge = bridgeTo('/raw');
    bridge.child.stdout.pause();
    bridge.write({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: {} });
    let before = -1;
    await expect
      .poll(
        () => {
          const isStill = sent > 0 && sent === before;
          before = sent;
          return isStill;
        },
        { interval: 500 },
      )
      .toBe(true);
    const memory = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${bridge.child.pid}/status`, 'utf8'))?.[1];
    expect(sent).toBeLessThan(40 * 1024 * 1024);
    expect(Number(memory)).toBeLessThan(200_000);
  });
});
