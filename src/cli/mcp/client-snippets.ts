import type { Json } from '../../json/value.ts';

/** Programs that people use MCP servers with. */
export const CLIENTS = ['claude-code', 'claude-desktop', 'vscode', 'cursor', 'codex'] as const;
export type ClientName = (typeof CLIENTS)[number];

export type KeySource =
  | { readonly kind: 'file'; readonly file: string }
  | { readonly kind: 'variable'; readonly name: string };

export type Snippet =
  | { readonly ok: true; readonly text: string; readonly where: string }
  | { readonly ok: false; readonly why: string };

/** What to write into a client's configuration. No key stands in it, and none in the arguments. */
export function snippetFor(
  client: ClientName,
  bridge: {
    readonly name: string;
    readonly command: string;
    readonly args: readonly string[];
    readonly key: KeySource;
    /** The address, for a client that speaks HTTP; `null`: the bridge is started. */
    readonly url: string | null;
  },
): Snippet {
  const { name, command, args, key, url } = bridge;
  if (url !== null) return httpSnippet(client, name, url, key);
  const start = { command, args: [...args] };
  switch (client) {
    case 'claude-code': {
      const where = '.mcp.json in the folder of the project';
      const env = fromVariable(key, (variable) => `\${${variable}}`);
      return found({ mcpServers: { [name]: { type: 'stdio', ...start, ...env } } }, where);
    }
    case 'claude-desktop': {
      if (key.kind === 'variable')
        return {
          ok: false,
          why: 'Claude Desktop starts servers without the variables of your shell, and would need the key itself in its file. Put the key into a file that only you can read, and name it with --key-file.',
        };
      const where = 'claude_desktop_config.json (Settings, Developer, Edit Config)';
      return found({ mcpServers: { [name]: start } }, where);
    }
    case 'vscode': {
      const where = '.vscode/mcp.json in the folder of the project';
      if (key.kind === 'file') return found({ servers: { [name]: { type: 'stdio', ...start } } }, where);
      const id = `${name}-key`;
      const inputs = [{ type: 'promptString', id, description: 'Key of svc-gateway', password: true }];
      const env = { [key.name]: `\${input:${id}}` };
      return found({ inputs, servers: { [name]: { type: 'stdio', ...start, env } } }, where);
    }
    case 'cursor': {
      const where = '.cursor/mcp.json in the folder of the project, or ~/.cursor/mcp.json';
      const env = fromVariable(key, (variable) => `\${env:${variable}}`);
      return found({ mcpServers: { [name]: { ...start, ...env } } }, where);
    }
    case 'codex': {
      const lines = [
        `[mcp_servers.${name}]`,
        `command = ${toml(command)}`,
        `args = [${args.map(toml).join(', ')}]`,
        ...(key.kind === 'variable' ? [`env_vars = [${toml(key.name)}]`] : []),
      ];
      return { ok: true, text: lines.join('\n'), where: '~/.codex/config.toml' };
    }
    default:
      return client satisfies never;
  }
}

/** The address of a server, with the key in a header that the client fills from a variable. */
function httpSnippet(client: ClientName, name: string, url: string, key: KeySource): Snippet {
  if (client === 'claude-desktop' || key.kind === 'file')
    return {
      ok: false,
      why:
        key.kind === 'file'
          ? 'No client reads the header of an address from a file. Name a variable with --key-env, or leave out --http.'
          : 'The file of Claude Desktop names no addresses. Leave out --http, and name a file with --key-file.',
    };
  const header = (value: string): { readonly headers: Record<string, string> } => ({ headers: { 'X-API-Key': value } });
  switch (client) {
    case 'claude-code': {
      const server = { type: 'http', url, ...header(`\${${key.name}}`) };
      return found({ mcpServers: { [name]: server } }, '.mcp.json in the folder of the project');
    }
    case 'vscode': {
      const id = `${name}-key`;
      const inputs = [{ type: 'promptString', id, description: 'Key of svc-gateway', password: true }];
      const server = { type: 'http', url, ...header(`\${input:${id}}`) };
      return found({ inputs, servers: { [name]: server } }, '.vscode/mcp.json in the folder of the project');
    }
    case 'cursor': {
      const where = '.cursor/mcp.json in the folder of the project, or ~/.cursor/mcp.json';
      return found({ mcpServers: { [name]: { url, ...header(`\${env:${key.name}}`) } } }, where);
    }
    case 'codex': {
      const headers = `env_http_headers = { "X-API-Key" = ${toml(key.name)} }`;
      const text = [`[mcp_servers.${name}]`, `url = ${toml(url)}`, headers].join('\n');
      return { ok: true, text, where: '~/.codex/config.toml' };
    }
    default:
      return client satisfies never;
  }
}

function fromVariable(
  key: KeySource,
  written: (variable: string) => string,
): { readonly env?: Record<string, string> } {
  return key.kind === 'variable' ? { env: { [key.name]: written(key.name) } } : {};
}

function found(value: Json, where: string): Snippet {
  return { ok: true, text: JSON.stringify(value, null, 2), where };
}

/** A basic string of TOML: the escapes of JSON are a part of those of TOML, but for the one that JSON leaves bare. */
function toml(text: string): string {
  return JSON.stringify(text).replaceAll('\u007f', '\\u007f');
}
