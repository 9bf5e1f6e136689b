import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { environmentLookup } from '../../../src/config/environment.ts';
import { toolName } from '../../../src/config/schema-fields.ts';
import type { FileReading } from '../../../src/diagnostics/file-reading.ts';
import type { LiveServer, PinComparison } from '../../../src/pins/compare.ts';
import { checkFiles } from '../../../src/cli/check-files.ts';
import type { CliContext } from '../../../src/cli/command.ts';
import type { InitOptions } from '../../../src/cli/init.ts';
import { makeFolders, refuseToDisturb, schemaUrl } from './files.ts';
import {
  lockFileIn,
  type McpChoices,
  type McpServer,
  mcpGatewayFile,
  mcpPolicyFile,
  reachLines,
  type UnusableTool,
} from './mcp-server-files.ts';
import { agentFor, isTaken, launcher, plainFolder, shellWord, upstreamNamed, workspaceFor } from './options.ts';
import { readKey, toMcpUrl } from '../../../src/cli/mcp/key.ts';
import { type GroupedTool, groupOf, TOOL_GROUPS, type ToolGroup } from './tool-groups.ts';
import { plainText } from './openapi/words.ts';
import { type CliPorts, CommandFailure } from '../../../src/cli/ports.ts';
import { json } from '../../../src/cli/terminal.ts';

/** Variables that most programs want. A program gets them where they are set. */
const USUAL_VARIABLES = ['PATH', 'HOME'];
/** The longest name of a tool in a policy. */
const MOST_NAME = 128;

const GROUP_TEXTS: Readonly<Record<ToolGroup, string>> = {
  reads: 'allowed, they only read',
  writes: 'allowed, they write',
  destructive: 'wait for a person each time',
};

/**
 * `svc init --mcp`: asks an MCP server for its tools, and writes a configuration, the pins, and a policy with them.
 * @param words the command after `--`
 */
export async function initMcp(
  options: InitOptions,
  words: readonly string[],
  { ports, terminal, exit }: CliContext,
): Promise<void> {
  const ask = terminal.interactive && !options.yes && !options.json;
  const folder = plainFolder(options.dir);
  const server = serverOf(options, words);
  if (options.name !== undefined) upstreamNamed(options.name);
  const workspace = workspaceFor(options);
  const agent = await agentFor(options, ask);
  const files = { gateway: join(folder, 'gateway.yaml'), policy: join(folder, 'policies', 'first.yaml') };
  if (!options.force) await refuseToDisturb(folder, Object.values(files));

  const live = await readDeclared(server, ports);
  const upstream = options.name ?? upstreamFrom(live, server);
  const lockFile = join(folder, lockFileIn(upstream));
  if (!options.force) await refuseToDisturb(folder, [lockFile]);
  const { approvePins, comparePins } = await import('../../../src/pins/compare.ts');
  const { renderPinLock } = await import('../../../src/pins/lock-file.ts');
  const compared = comparePins(upstream, null, live);
  const { tools, unusable } = usable(upstream, compared);
  if (tools.length === 0) throw new CommandFailure(nothingToCall(unusable));
  const names = tools.map(({ name }) => name);
  const pinned = approvePins(null, live, compared, { kind: 'tools', names, about: true });
  if (!pinned.ok) throw new CommandFailure(`${pinned.unknown.join(', ')} cannot be pinned`);

  const choices: McpChoices = { upstream, server, workspace, agent, folder, launcher: launcher() };
  await makeFolders(folder);
  await mkdir(dirname(lockFile), { recursive: true });
  await writeFile(lockFile, renderPinLock(pinned.lock));
  await writeFile(files.gateway, mcpGatewayFile(choices, tools, unusable, schemaUrl('gateway')));
  await writeFile(files.policy, mcpPolicyFile(choices, tools, schemaUrl('policy-v1')));
  const checked = await checkFiles(files.gateway, { environment: {}, color: terminal.color });
  if (checked.exit !== 0) exit(1);
  const inGroup = (group: ToolGroup): readonly GroupedTool[] => tools.filter((tool) => tool.group === group);
  if (options.json) {
    const groups = Object.fromEntries(TOOL_GROUPS.map((group) => [group, inGroup(group).map(({ name }) => name)]));
    const skipped = unusable.map(({ name, why }) => plainText(`${name}: ${why}`, 200));
    const { findings } = checked;
    return terminal.out(json({ files: { ...files, pins: lockFile }, upstream, tools: groups, skipped, findings }));
  }

  terminal.out(`Wrote ${files.gateway}, ${files.policy} and ${lockFile}.`);
  const count = tools.length === 1 ? '1 tool' : `${tools.length} tools`;
  terminal.out(`${count} of ${plainText(live.server ?? upstream, 80)}, pinned as they are now:`);
  for (const group of TOOL_GROUPS) {
    const own = inGroup(group);
    if (own.length > 0)
      terminal.out(`  ${own.length} ${GROUP_TEXTS[group]}: ${own.map(({ name }) => name).join(', ')}`);
  }
  for (const { name, why } of unusable) terminal.out(`  left out: ${plainText(`${name}: ${why}`, 200)}`);
  if (checked.exit !== 0 || checked.findings.length > 0) terminal.err(checked.text.trimEnd());

  const { launcher: svc } = choices;
  const file = shellWord(files.gateway);
  const key = `${svc} keys create --config ${file} --kind`;
  terminal.out('');
  terminal.out('This is a first guess, by what the server says of its tools: read the files, and correct them.');
  terminal.out(checked.exit === 0 ? 'Next, in this folder:' : 'Mend that first. Then, in this folder:');
  terminal.out(`  ${svc} start --config ${file}`);
  terminal.out(`  ${key} agent --workspace ${workspace} --agent ${agent} --user operator`);
  terminal.out(`  export SVC_API_KEY=…        # that key`);
  terminal.out(`  ${svc} mcp config --client claude-code --http --url http://127.0.0.1:8080/mcp/${upstream}`);
  terminal.out('Who approves what waits:');
  terminal.out(`  ${key} account --workspace ${workspace} --user reviewer`);
  terminal.out(`  ${svc} approvals list --workspace ${workspace}        # with the reviewer's key in SVC_API_KEY`);
  terminal.out(`Other clients: ${svc} mcp config --help. The port is server.port in ${files.gateway}.`);
}

/** How the server is reached, by the command line. @throws CommandFailure */
function serverOf(options: InitOptions, words: readonly string[]): McpServer {
  const { mcp, keyEnv, header, env } = options;
  const given = mcp === true || mcp === undefined ? null : mcp.trim();
  if (given !== null && words.length > 0)
    throw new CommandFailure('Name one server: --mcp URL, --mcp "COMMAND …", or --mcp -- COMMAND …');
  if (given !== null && /^https?:\/\//i.test(given)) {
    if (env.length > 0) throw new CommandFailure('--env is for a program; the key of a server goes with --key-env');
    const { href } = urlOf(given);
    if (keyEnv === undefined) return { kind: 'address', url: href, credential: null };
    return { kind: 'address', url: href, credential: { header: headerOf(header), variable: variable(keyEnv) } };
  }
  if (keyEnv !== undefined)
    throw new CommandFailure(
      '--key-env is for a server with a URL; a program gets its secrets in variables: --env NAME',
    );
  const command = given === null ? words : wordsOf(given);
  if (command.length === 0)
    throw new CommandFailure('Name the MCP server: --mcp https://host/mcp, or --mcp -- COMMAND ARGUMENTS…');
  const lookup = environmentLookup({});
  const unset = env.find((name) => lookup(variable(name)) === undefined);
  if (unset !== undefined)
    throw new CommandFailure(`The variable ${unset} is not set here, so the program would get none`);
  const usual = USUAL_VARIABLES.filter((name) => lookup(name) !== undefined);
  return { kind: 'program', command, env: [...new Set([...usual, ...env])] };
}

/** No shell reads the command, so what only a shell understands is refused. @throws CommandFailure */
function wordsOf(text: string): readonly string[] {
  if (/["'`\\$|&;<>*?(){}\n]/.test(text))
    throw new CommandFailure(
      'No shell reads the command of --mcp. One with quotes, variables or the like goes after --: svc init --mcp -- COMMAND ARGUMENTS…',
    );
  return text.split(/\s+/).filter((word) => word !== '');
}

function urlOf(text: string): URL {
  try {
    return toMcpUrl(text);
  } catch (error) {
    throw new CommandFailure(`--mcp: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** @throws CommandFailure, which does not repeat what may be a secret */
function variable(name: string): string {
  if (!/^[A-Za-z_]\w*$/.test(name))
    throw new CommandFailure(
      '--env and --key-env take the name of a variable, not its value: arguments can be read by others',
    );
  return name;
}

function headerOf(name: string): string {
  if (!/^[A-Za-z0-9!#$%&+.^_|~-]{1,100}$/.test(name)) throw new CommandFailure('--header takes the name of a header');
  return name.toLowerCase();
}

/** Reads the server as a gateway with this configuration will; a program is started for it. */
async function readDeclared(server: McpServer, ports: CliPorts): Promise<LiveServer> {
  const credential = server.kind === 'address' ? server.credential : null;
  if (credential !== null) await readKey({ kind: 'variable', name: credential.variable });
  const { loadMcpServer } = await import('../../../src/config/load.ts');
  const text = Buffer.from(['upstreams:', '  - id: mcp', ...reachLines(server), ''].join('\n'));
  const reading: FileReading = {
    bytes: async () => text,
    size: async () => text.length,
    names: async () => null,
    isStill: async () => true,
  };
  const { upstream } = await loadMcpServer('gateway.yaml', 'mcp', { environment: {} }, reading);
  const live = await ports.readMcpServer(upstream);
  if (typeof live !== 'string') return live;
  const hint = server.kind === 'address' ? '. The variable that holds its key: --key-env NAME.' : '';
  throw new CommandFailure(`The MCP server cannot be read: ${live}${hint}`);
}

/** `everything` for a server that calls itself `mcp-servers/everything`. */
function upstreamFrom({ server: serverName }: LiveServer, server: McpServer): string {
  const host = server.kind === 'address' ? new URL(server.url).hostname : '';
  for (const text of [serverName ?? '', host]) {
    const words = text
      .toLowerCase()
      .split(/[^a-z0-9]+/)
      .filter((word) => word !== '' && !/^(?:mcps?|servers?|www|api|com|localhost|\d+)$/.test(word));
    const name = words.join('-').slice(0, 24).replace(/-+$/, '');
    if (/^[a-z]/.test(name) && !isTaken(name)) return name;
  }
  return 'tools';
}

function usable(
  upstream: string,
  { tools }: PinComparison,
): { readonly tools: readonly GroupedTool[]; readonly unusable: readonly UnusableTool[] } {
  const usableTools: GroupedTool[] = [];
  const unusable: UnusableTool[] = [];
  for (const state of tools) {
    const name = `${upstream}.${state.name ?? ''}`;
    if (state.kind === 'unusable') unusable.push({ name: state.name ?? '(without a name)', why: state.why });
    else if (!new RegExp(toolName).test(name) || name.length > MOST_NAME)
      unusable.push({ name: state.name, why: `${name} is no name that a tool can have here` });
    else if ('live' in state) usableTools.push(groupOf(state.live.tool));
  }
  return { tools: usableTools, unusable };
}

function nothingToCall(unusable: readonly UnusableTool[]): string {
  if (unusable.length === 0) return 'The server lists no tools, so there is nothing to put behind a gateway';
  const first = plainText(`${unusable[0]?.name}: ${unusable[0]?.why}`, 200);
  return `None of the ${unusable.length} tools of the server can be called: ${first}`;
}
