import { type Command, InvalidArgumentError, Option } from 'commander';
import { isLoopback } from '../config/resolve-webhooks.ts';
import { type CliContext } from './command.ts';
import { CLIENTS, type ClientName, snippetFor } from './mcp/client-snippets.ts';
import { type KeyOptions, keySource, readKey, toMcpUrl, withKeyOptions } from './mcp/key.ts';
import { CommandFailure } from './ports.ts';

interface BridgeOptions extends KeyOptions {
  readonly url: URL;
}

interface ConfigOptions extends BridgeOptions {
  readonly client: ClientName;
  readonly name?: string;
  readonly http?: true;
}

/** `svc mcp-bridge` and `svc mcp config`: hosts that start servers as processes, before a gateway that is one over HTTP. */
export function addMcp(program: Command, { terminal }: CliContext): void {
  withUrl(
    program
      .command('mcp-bridge')
      .description('carries MCP between standard input and output and a gateway; hosts start it as a server'),
  ).action(async (options: BridgeOptions) => {
    const key = keySource(options);
    if (options.url.protocol === 'http:' && !isLoopback(options.url.hostname))
      terminal.err(`svc: the key goes to ${options.url.host} unencrypted; use https there`);
    const { runBridge } = await import('../../packages/bridge/src/bridge.ts');
    await runBridge({
      url: options.url,
      readKey: () => readKey(key),
      keyHint:
        key.kind === 'file'
          ? `Put a valid key into the file ${key.file}; it is read again at the next call.`
          : `Set the variable ${key.name} to a valid key where the server is configured, and start the server again.`,
      input: process.stdin,
      output: process.stdout,
      log: (line) => terminal.err(`svc mcp-bridge: ${line}`),
      stopped: terminal.stopped(),
    });
  });

  const mcp = program.command('mcp').description('MCP: set-up of clients');
  withUrl(mcp.command('config').description('what to write into the configuration of an MCP client'))
    .addOption(new Option('--client <client>', 'the client').choices(CLIENTS).makeOptionMandatory())
    .option('--name <name>', 'what the client calls the server; by default the upstream of /mcp/ID, or svc', toName)
    .option('--http', 'the address itself, for clients that speak HTTP, in place of the bridge')
    .action((options: ConfigOptions) => {
      const key = keySource(options);
      const source = key.kind === 'file' ? ['--key-file', key.file] : ['--key-env', key.name];
      const snippet = snippetFor(options.client, {
        name: options.name ?? nameIn(options.url),
        url: options.http === true ? options.url.href : null,
        // Hosts with windows do not have the search path of a shell.
        command: process.execPath,
        args: [process.argv[1] ?? 'svc', 'mcp-bridge', '--url', options.url.href, ...source],
        key,
      });
      if (!snippet.ok) throw new CommandFailure(snippet.why);
      terminal.err(`For ${snippet.where}:`);
      terminal.out(snippet.text);
    });
}

function withUrl(command: Command): Command {
  return withKeyOptions(
    command.requiredOption('--url <url>', 'the MCP server, e.g. http://127.0.0.1:8080/v1/mcp', toMcpUrl),
    'the gateway',
  );
}

/** The upstream of an address `/mcp/ID`. */
function nameIn({ pathname }: URL): string {
  return /\/mcp\/([A-Za-z0-9][A-Za-z0-9_-]{0,63})$/.exec(pathname)?.[1] ?? 'svc';
}

function toName(text: string): string {
  if (!/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(text))
    throw new InvalidArgumentError('Letters, digits, "-" and "_", at most 64.');
  return text;
}
