import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type Command, Option } from 'commander';
import { type Approval, type LiveServer, type PinComparison, comparisonToWire } from '../pins/compare.ts';
import type { PinLock } from '../pins/lock-file.ts';
import { printable, renderFindings } from '../diagnostics/render.ts';
import { type CliContext, readText } from './command.ts';
import { type KeyOptions, namedKey, readKey, toMcpUrl, withKeyOptions } from './mcp/key.ts';
import { CommandFailure, WrongUsage } from './ports.ts';
import { json, styled, table, type Terminal } from './terminal.ts';

/** How long a server may take for one answer, ms. */
const TIMEOUT_MS = 30_000;

interface ToolsOptions extends KeyOptions {
  readonly config?: string;
  readonly upstream?: string;
  readonly url?: URL;
  readonly lock?: string;
  readonly header: string;
  readonly json?: true;
}

/** A server, and the file that holds its pins. */
interface Server {
  /** Its upstream in the configuration; `null` where it is not named. */
  readonly upstream: string | null;
  readonly lock: string;
  readonly name: string;
  /** What it says now. @throws CommandFailure */
  readonly read: () => Promise<LiveServer>;
}

/** What a server lists now, compared with its lock file. */
interface Inspection {
  readonly file: string;
  readonly lock: PinLock | null;
  readonly live: LiveServer;
  readonly comparison: PinComparison;
}

/** `svc tools list|diff|pin|approve`: what an MCP server offers, and what of it was approved. */
export function addTools(program: Command, context: CliContext): void {
  const { terminal, exit } = context;
  const tools = program.command('tools').description('tools of an MCP server, and which of them are approved');

  onServer(tools.command('list').description('the tools of a server, and how each stands to its pin')).action(
    async (options: ToolsOptions) => {
      const { comparison } = await inspect(await serverOf(options, context));
      if (options.json) return terminal.out(json(comparisonToWire(comparison)));
      const rows = comparison.tools.map((state) => [
        state.name ?? '(without a name)',
        state.kind,
        state.kind === 'unusable'
          ? state.why
          : titleOf(state.kind === 'unchanged' || state.kind === 'gone' ? state.pin.tool : state.live.tool),
      ]);
      terminal.out(rows.length === 0 ? 'None.' : table(['tool', 'state', 'what it says of itself'], rows));
    },
  );

  onServer(tools.command('diff').description('what a server lists now against what was approved')).action(
    async (options: ToolsOptions) => {
      const { comparison } = await inspect(await serverOf(options, context));
      await show(terminal, options, comparison);
      if (!comparison.isUnchanged) exit(1);
    },
  );

  onServer(tools.command('pin').description('approves all tools of a server that has no lock file yet')).action(
    async (options: ToolsOptions) => {
      const server = await serverOf(options, context);
      if (server.upstream === null)
        throw new WrongUsage('Name the upstream of the configuration that the server is: --upstream ID.');
      if (existsSync(server.lock))
        throw new CommandFailure(`${server.lock} is there already; \`svc tools approve\` changes it.`);
      await approve(terminal, options, await inspect(server), { kind: 'all' });
    },
  );

  onServer(
    tools
      .command('approve')
      .argument('[names...]', 'the tools that are approved as they are now')
      .description('approves new, changed, renamed and gone tools, after a look at `svc tools diff`'),
  )
    .addOption(new Option('--all', 'all that is different').conflicts('about'))
    .option('--about', 'the name and the instructions of the server')
    .action(async (names: string[], options: ToolsOptions & { readonly all?: true; readonly about?: true }) => {
      if (names.length > 0 === (options.all === true) && options.about !== true)
        throw new WrongUsage('Name the tools to approve, or say --all, or --about.');
      const inspected = await inspect(await serverOf(options, context));
      if (inspected.lock === null)
        throw new CommandFailure(`There is no ${inspected.file}; \`svc tools pin\` writes it.`);
      const chosen: Approval = options.all ? { kind: 'all' } : { kind: 'tools', names, about: options.about === true };
      await approve(terminal, options, inspected, chosen);
    });
}

function onServer(command: Command): Command {
  return withKeyOptions(command, 'a server')
    .option('--config <file>', 'the configuration that declares the server: a program, or an address')
    .option('--upstream <id>', 'the upstream of the configuration that the server is')
    .addOption(
      new Option('--url <url>', 'in place of --config: the MCP server itself, not the gateway before it')
        .argParser(toMcpUrl)
        .conflicts('config'),
    )
    .option('--header <name>', 'the header that the key goes in (Authorization: as Bearer)', 'Authorization')
    .option('--lock <file>', 'the lock file: what was approved (with --config: as it says there)')
    .option('--json', 'print JSON');
}

/** @throws CommandFailure where the options name no server; InvalidFiles */
async function serverOf(options: ToolsOptions, context: CliContext): Promise<Server> {
  const { config, upstream, url, lock } = options;
  if (config !== undefined && upstream !== undefined) return declaredServer(config, upstream, options, context);
  if (config !== undefined) throw new WrongUsage('Name the server in the configuration: --upstream ID.');
  if (url === undefined)
    throw new WrongUsage('Name the server: --config FILE --upstream ID, or --url URL --lock FILE.');
  if (lock === undefined) throw new WrongUsage('Name the lock file: --lock FILE.');
  return { upstream: upstream ?? null, lock, name: url.host, read: () => readAt(url, options, context) };
}

/** The server is asked as a gateway with this configuration asks it. */
async function declaredServer(
  config: string,
  id: string,
  options: ToolsOptions,
  { ports, terminal }: CliContext,
): Promise<Server> {
  const { keyEnv, keyFile } = options;
  if (keyEnv !== undefined || keyFile !== undefined)
    throw new WrongUsage('With --config the server gets what the configuration says; a key goes with --url.');
  const { loadMcpServer } = await import('../config/load.ts');
  const { upstream, lock, warnings, sources } = await loadMcpServer(config, id, { environment: {} });
  if (warnings.length > 0) terminal.err(renderFindings(warnings, sources, { color: terminal.color }).trimEnd());
  const read = async (): Promise<LiveServer> => {
    const live = await ports.readMcpServer(upstream);
    if (typeof live === 'string') throw new CommandFailure(`The server '${id}' cannot be read: ${live}.`);
    return live;
  };
  return { upstream: id, lock: options.lock ?? lock, name: id, read };
}

async function readAt(url: URL, options: ToolsOptions, { ports }: CliContext): Promise<LiveServer> {
  const source = namedKey(options);
  const key = source === null ? null : await readKey(source);
  const header = options.header.toLowerCase();
  const live = await ports.readMcpServer({
    id: url.host,
    url: url.origin,
    timeoutMs: TIMEOUT_MS,
    network: 'any',
    credentials: key === null ? null : { header, value: header === 'authorization' ? `Bearer ${key}` : key },
    mcp: { path: `${url.pathname}${url.search}`, allow: [] },
  });
  if (typeof live === 'string')
    throw new CommandFailure(`${url.href} cannot be read: ${live}. The variable that holds its key: --key-env NAME.`);
  return live;
}

/** @throws CommandFailure also where the lock file is another server's */
async function inspect({ upstream, lock: file, name, read }: Server): Promise<Inspection> {
  const { comparePins } = await import('../pins/compare.ts');
  const lock = existsSync(file) ? await readLock(file) : null;
  if (lock !== null && upstream !== null && lock.upstream !== upstream)
    throw new CommandFailure(`${file} holds the pins of '${lock.upstream}', not of '${upstream}'.`);
  const live = await read();
  return { file, lock, live, comparison: comparePins(lock?.upstream ?? upstream ?? name, lock, live) };
}

async function readLock(file: string): Promise<PinLock> {
  const { parsePinLock } = await import('../pins/lock-file.ts');
  const read = parsePinLock(await readText(file));
  if (read.ok) return read.lock;
  throw new CommandFailure(`${file}${read.line === null ? '' : `:${read.line}`} cannot be used: ${read.message}`);
}

async function approve(
  terminal: Terminal,
  options: ToolsOptions,
  { file, lock, live, comparison }: Inspection,
  chosen: Approval,
): Promise<void> {
  const [{ approvePins }, { renderPinLock }] = await Promise.all([
    import('../pins/compare.ts'),
    import('../pins/lock-file.ts'),
  ]);
  const approved = approvePins(lock, live, comparison, chosen);
  if (!approved.ok)
    throw new CommandFailure(`There is nothing to approve by the name of ${approved.unknown.join(', ')}.`);
  await show(terminal, options, comparison);
  // In one step: a gateway that watches the file never sees a half of it.
  await mkdir(dirname(file), { recursive: true });
  const temporary = `${file}.${process.pid}.new`;
  try {
    await writeFile(temporary, renderPinLock(approved.lock));
    await rename(temporary, file);
  } finally {
    await rm(temporary, { force: true });
  }
  terminal.err(
    `${file}: ${approved.lock.tools.length === 1 ? '1 tool is' : `${approved.lock.tools.length} tools are`} approved.`,
  );
}

async function show(terminal: Terminal, options: ToolsOptions, comparison: PinComparison): Promise<void> {
  if (options.json) return terminal.out(json(comparisonToWire(comparison)));
  const { renderComparison } = await import('../pins/compare.ts');
  const lines = renderComparison(comparison);
  if (lines.length === 0) return terminal.out('Nothing is different.');
  for (const line of lines) {
    const style = /^\s+\+/.test(line) ? 'green' : /^\s+-/.test(line) ? 'red' : 'bold';
    terminal.out(styled(terminal, style, line));
  }
}

function titleOf(tool: { readonly [name: string]: unknown }): string {
  const described = [tool['title'], tool['description']].find((text) => typeof text === 'string');
  return typeof described === 'string' ? printable(described.split('\n')[0] ?? '').slice(0, 80) : '';
}
