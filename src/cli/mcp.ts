import { type Command, InvalidArgumentError, Option } from 'commander';
import { environmentLookup } from '../config/environment.ts';
import { type CliContext, readText, withExitCodes } from './command.ts';
import { CLIENTS, type ClientName, type KeySource, snippetFor } from './mcp/client-snippets.ts';
import { CommandFailure } from './ports.ts';

interface BridgeOptions {
  readonly url: URL;
  readonly keyEnv?: string;
  readonly keyFile?: string;
}

interface ConfigOptions extends BridgeOptions {
  readonly client: ClientName;
  readonly name: string;
}

/** `svc mcp-bridge` and `svc mcp config`: hosts that start servers as processes, before a gateway that is one over HTTP. */
export function addMcp(program: Command, { terminal }: CliContext): void {
  const bridge = withKey(
    program
      .command('mcp-bridge')
      .description('carries MCP between standard input and output and a gateway; hosts start it as a server'),
  ).action(async (options: BridgeOptions) => {
    const key = keySource(options);
    if (options.url.protocol === 'http:' && !isLoopback(options.url.hostname))
      terminal.err(`svc: the key goes to ${options.url.host} unencrypted; use https there`);
    const { runBridge } = await import('./mcp/bridge.ts');
    await runBridge({
      url: options.url,
      readKey: () => readKey(key),
      keyHint:
        key.kind === 'file'
          ? `Put a valid key into the file ${key.file}; it is read again at the next call.`
          : `Set the variable ${key.name} to a valid key where the server is configured, and start the server again.`,
      input: process.stdin,
      output: process.stdout,
      say: (line) => terminal.err(`svc mcp-bridge: ${line}`),
      stopped: terminal.stopped(),
    });
  });
  withExitCodes(bridge, 'the input ended', 'is not used', 'could not run: no key, wrong options');

  const mcp = program.command('mcp').description('MCP: set-up of clients');
  const config = withKey(mcp.command('config').description('what to write into the configuration of an MCP client'))
    .addOption(new Option('--client <client>', 'the client').choices(CLIENTS).makeOptionMandatory())
    .option('--name <name>', 'what the client calls the server', toName, 'svc')
    .action((options: ConfigOptions) => {
      const key = keySource(options);
      const source = key.kind === 'file' ? ['--key-file', key.file] : ['--key-env', key.name];
      const snippet = snippetFor(options.client, {
        name: options.name,
        // Hosts with windows do not have the search path of a shell.
        command: process.execPath,
        args: [process.argv[1] ?? 'svc', 'mcp-bridge', '--url', options.url.href, ...source],
        key,
      });
      if (!snippet.ok) throw new CommandFailure(snippet.why);
      terminal.err(`For ${snippet.where}:`);
      terminal.out(snippet.text);
    });
  withExitCodes(config, 'printed', 'is not used', 'wrong options');
}

function withKey(command: Command): Command {
  return command
    .requiredOption('--url <url>', 'the MCP server, e.g. http://127.0.0.1:8080/v1/mcp', toUrl)
    .addOption(
      new Option('--key-env <name>', 'variable that holds the key (default: SVC_API_KEY)').conflicts('keyFile'),
    )
    .option('--key-file <file>', 'file that holds the key; read again when the key is refused');
}

function keySource({ keyEnv, keyFile }: BridgeOptions): KeySource {
  if (keyFile !== undefined) return { kind: 'file', file: keyFile };
  const name = keyEnv ?? 'SVC_API_KEY';
  // Somebody may have given the key itself. It is not repeated: the message may stand in a log.
  if (!/^[A-Za-z_]\w*$/.test(name) || /^svc_(?:acct|agent|admin|mcp)_/i.test(name))
    throw new CommandFailure('--key-env takes the name of a variable, not the key: arguments can be read by others.');
  return { kind: 'variable', name };
}

/** @throws CommandFailure, which never repeats the key */
async function readKey(source: KeySource): Promise<string> {
  const found = source.kind === 'file' ? await readText(source.file) : (environmentLookup({})(source.name) ?? '');
  const key = found.trim();
  const where = source.kind === 'file' ? `The file ${source.file}` : `The variable ${source.name}`;
  if (key === '') throw new CommandFailure(`${where} holds no key.`);
  if (!/^[\x21-\x7e]+$/.test(key)) throw new CommandFailure(`${where} holds something that is no key.`);
  return key;
}

function toUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:'))
    throw new InvalidArgumentError('A URL that begins with http:// or https://.');
  if (url.username !== '' || url.password !== '' || url.searchParams.has('api_key'))
    throw new InvalidArgumentError(
      'A URL without a key: arguments can be read by others. Use --key-env or --key-file.',
    );
  url.hash = '';
  return url;
}

function toName(text: string): string {
  if (!/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(text))
    throw new InvalidArgumentError('Letters, digits, "-" and "_", at most 64.');
  return text;
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127(?:\.\d{1,3}){3}$/.test(host);
}
