import { describe, expect, test } from 'vitest';
import { CLIENTS } from '../../src/cli/mcp/client-snippets.ts';
import { svc } from './run.ts';

const URL = 'http://127.0.0.1:8080/v1/mcp';
const START = { command: process.execPath, args: [process.argv[1], 'mcp-bridge', '--url', URL] };
const BY_FILE = { ...START, args: [...START.args, '--key-file', '/run/key'] };
const BY_VARIABLE = { ...START, args: [...START.args, '--key-env', 'MY_KEY'] };

const config = (client: string, ...more: string[]) => svc('mcp', 'config', '--url', URL, '--client', client, ...more);

describe('svc mcp config', () => {
  test.each<[string, object, object]>([
    [
      'claude-code',
      { mcpServers: { svc: { type: 'stdio', ...BY_FILE } } },
      { mcpServers: { svc: { type: 'stdio', ...BY_VARIABLE, env: { MY_KEY: '${MY_KEY}' } } } },
    ],
    [
      'cursor',
      { mcpServers: { svc: BY_FILE } },
      { mcpServers: { svc: { ...BY_VARIABLE, env: { MY_KEY: '${env:MY_KEY}' } } } },
    ],
    [
      'vscode',
      { servers: { svc: { type: 'stdio', ...BY_FILE } } },
      {
        inputs: [{ type: 'promptString', id: 'svc-key', description: 'Key of svc-gateway', password: true }],
        servers: { svc: { type: 'stdio', ...BY_VARIABLE, env: { MY_KEY: '${input:svc-key}' } } },
      },
    ],
  ])('%s', async (client, byFile, byVariable) => {
    const file = await config(client, '--key-file', '/run/key');
    expect([file.code, JSON.parse(file.out)]).toEqual([0, byFile]);
    expect(file.err).toMatch(/^For .*mcp\.json/);
    expect(JSON.parse((await config(client, '--key-env', 'MY_KEY')).out)).toEqual(byVariable);
  });

  test('an address for clients that speak HTTP, with the key in a header that they fill from a variable', async () => {
    const url = 'http://127.0.0.1:8080/mcp/crm';
    const http = (client: string, ...more: string[]) =>
      svc('mcp', 'config', '--url', url, '--client', client, '--http', ...more);
    const filled = (value: string) => ({ url, headers: { 'X-API-Key': value } });
    const mcpServers = { crm: { type: 'http', ...filled('${SVC_API_KEY}') } };
    expect(JSON.parse((await http('claude-code')).out)).toEqual({ mcpServers });
    const cursor = await http('cursor', '--key-env', 'MY_KEY');
    expect(JSON.parse(cursor.out)).toEqual({ mcpServers: { crm: filled('${env:MY_KEY}') } });
    expect(JSON.parse((await http('vscode')).out)).toEqual({
      inputs: [{ type: 'promptString', id: 'crm-key', description: 'Key of svc-gateway', password: true }],
      servers: { crm: { type: 'http', ...filled('${input:crm-key}') } },
    });
    // Codex expands nothing in `http_headers`: there is a setting of its own for names of variables.
    expect((await http('codex', '--key-env', 'MY_KEY')).out.split('\n')).toEqual([
      '[mcp_servers.crm]',
      'url = "http://127.0.0.1:8080/mcp/crm"',
      'env_http_headers = { "X-API-Key" = "MY_KEY" }',
    ]);
    const without: readonly [string, ...string[]][] = [['claude-desktop'], ['cursor', '--key-file', '/run/key']];
    for (const more of without)
      expect(await http(...more)).toMatchObject({ code: 2, out: '', err: expect.stringContaining('--http') });
  });

  test('codex', async () => {
    const { out } = await config('codex', '--key-env', 'MY_KEY', '--name', 'my-gateway');
    expect(out.split('\n')).toEqual([
      '[mcp_servers.my-gateway]',
      `command = ${JSON.stringify(process.execPath)}`,
      `args = ${JSON.stringify(BY_VARIABLE.args).replaceAll(',', ', ')}`,
      'env_vars = ["MY_KEY"]',
    ]);
    expect((await config('codex', '--key-file', '/run/key')).out).not.toContain('env');
  });

  test('claude-desktop knows no variables: the key is in a file, or nothing is printed', async () => {
    expect(JSON.parse((await config('claude-desktop', '--key-file', '/run/key')).out)).toEqual({
      mcpServers: { svc: BY_FILE },
    });
    expect(await config('claude-desktop')).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringContaining('--key-file'),
    });
  });

  test.each([
    [['--key-env', 'svc_agent_x'], 'not the key'],
    [['--key-env', 'svc_acct_x'], 'not the key'],
    [['--key-env', 'svc_admin_x'], 'not the key'],
    [['--key-env', 'svc_mcp_x'], 'not the key'],
    [['--url', 'ftp://x'], 'http:// or https://'],
    [['--url', 'http://u:p@x'], 'without a key'],
    [['--url', 'http://:p@x'], 'without a key'],
    [['--url', 'http://x/v1/mcp?api_key=k'], 'without a key'],
    [['--name', 'a.b'], 'Letters, digits'],
    [['--key-env', 'A', '--key-file', 'b'], 'cannot be used with'],
  ])('%j is refused', async (more, why) => {
    expect(await config('codex', ...more)).toMatchObject({ code: 64, out: '', err: expect.stringContaining(why) });
  });

  test('what stands after # is no part of the address', async () => {
    const { out } = await svc('mcp', 'config', '--url', `${URL}#part`, '--client', 'cursor', '--key-file', '/run/key');
    expect(JSON.parse(out)).toEqual({ mcpServers: { svc: BY_FILE } });
  });

  test('TOML has no bare control character, not even the one that JSON leaves bare', async () => {
    const { out } = await config('codex', '--key-file', '/run/a\u007fb');
    expect(out).toContain(String.raw`"/run/a\u007fb"`);
  });

  test('every client that is offered has a snippet, and the file for it is named on standard error', async () => {
    const files = {
      'claude-code': '.mcp.json',
      'claude-desktop': 'claude_desktop_config.json',
      vscode: '.vscode/mcp.json',
      cursor: '.cursor/mcp.json',
      codex: '~/.codex/config.toml',
    };
    for (const client of CLIENTS) {
      const named = expect.stringContaining(`For ${files[client]}`);
      const bridge = await config(client, '--key-file', '/run/key');
      expect(bridge).toMatchObject({ out: expect.stringContaining('mcp-bridge'), err: named });
      if (client !== 'claude-desktop') expect((await config(client, '--http')).err).toEqual(named);
    }
  });
});
