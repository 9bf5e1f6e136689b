import { existsSync } from 'node:fs';
import { rename, rm, writeFile } from 'node:fs/promises';
import { type Command, Option } from 'commander';
import type { Approval, LiveServer, PinComparison } from '../pins/compare.ts';
import type { PinLock } from '../pins/lock-file.ts';
import { printable } from '../diagnostics/render.ts';
import { type CliContext, readText, withExitCodes } from './command.ts';
import { type KeyOptions, keySource, readKey, toMcpUrl, withKeyOptions } from './mcp/key.ts';
import { CommandFailure } from './ports.ts';
import { json, styled, table, type Terminal } from './terminal.ts';

interface ToolsOptions extends KeyOptions {
  readonly url: URL;
  readonly lock: string;
  readonly header: string;
  readonly json?: true;
}

interface PinOptions extends ToolsOptions {
  readonly upstream: string;
}

interface ApproveOptions extends ToolsOptions {
  readonly all?: true;
  readonly about?: true;
}

/** What a server says now, beside its lock file. */
interface Looked {
  readonly lock: PinLock | null;
  readonly live: LiveServer;
  readonly comparison: PinComparison;
}

/** `svc tools list|diff|pin|approve`: what an MCP server offers, and what of it was approved. */
export function addTools(program: Command, { terminal, exit }: CliContext): void {
  const tools = program.command('tools').description('tools of an MCP server, and which of them are approved');

  const list = onServer(tools.command('list').description('the tools of a server, and how each stands to its pin'));
  list.action(async (options: ToolsOptions) => {
    const { comparison } = await look(options, null);
    if (options.json) return terminal.out(json(wireOf(comparison)));
    const rows = comparison.tools.map((state) => [
      state.name ?? '(without a name)',
      state.kind,
      state.kind === 'unusable'
        ? state.why
        : titleOf(state.kind === 'unchanged' || state.kind === 'gone' ? state.pin.tool : state.live.tool),
    ]);
    terminal.out(rows.length === 0 ? 'None.' : table(['tool', 'state', 'what it says of itself'], rows));
  });
  withExitCodes(list, 'listed', 'is not used', 'could not run: no answer, a broken lock file, wrong options');

  const diff = onServer(tools.command('diff').description('what a server lists now against what was approved'));
  diff.action(async (options: ToolsOptions) => {
    const { comparison } = await look(options, null);
    await show(terminal, options, comparison);
    if (!comparison.isUnchanged) exit(1);
  });
  withExitCodes(diff, 'nothing is different', 'something is different', 'could not run');

  const pin = onServer(tools.command('pin').description('approves all tools of a server that has no lock file yet'))
    .requiredOption('--upstream <id>', 'the upstream of the configuration that the server is')
    .action(async (options: PinOptions) => {
      if (existsSync(options.lock))
        throw new CommandFailure(`${options.lock} is there already; \`svc tools approve\` changes it.`);
      const looked = await look(options, options.upstream);
      await approve(terminal, options, looked, { kind: 'all' });
    });
  withExitCodes(pin, 'pinned', 'is not used', 'could not run');

  const approving = onServer(
    tools
      .command('approve')
      .argument('[names...]', 'the tools that are approved as they are now')
      .description('approves new, changed, renamed and gone tools, after a look at `svc tools diff`'),
  )
    .addOption(new Option('--all', 'all that is different').conflicts('about'))
    .option('--about', 'the name and the instructions of the server')
    .action(async (names: string[], options: ApproveOptions) => {
      if (names.length > 0 === (options.all === true) && options.about !== true)
        throw new CommandFailure('Name the tools to approve, or say --all, or --about.');
      const looked = await look(options, null);
      if (looked.lock === null) throw new CommandFailure(`There is no ${options.lock}; \`svc tools pin\` writes it.`);
      const chosen: Approval = options.all ? { kind: 'all' } : { kind: 'tools', names, about: options.about === true };
      await approve(terminal, options, looked, chosen);
    });
  withExitCodes(approving, 'approved', 'is not used', 'could not run; nothing was approved');
}

function onServer(command: Command): Command {
  return withKeyOptions(command)
    .requiredOption('--url <url>', 'the MCP server itself, not the gateway before it', toMcpUrl)
    .option('--header <name>', 'the header that the key goes in (Authorization: as Bearer)', 'Authorization')
    .requiredOption('--lock <file>', 'the lock file: what was approved')
    .option('--json', 'print JSON');
}

/** @param upstream of a lock file that is to be made; `null` where it is read */
async function look(options: ToolsOptions, upstream: string | null): Promise<Looked> {
  const [{ comparePins }, { readLiveServer }] = await Promise.all([
    import('../pins/compare.ts'),
    import('./mcp/live-server.ts'),
  ]);
  const lock = existsSync(options.lock) ? await readLock(options.lock) : null;
  const headers: Record<string, string> = {};
  // A server may want no key at all: the variable counts where it is named, or set.
  const key = await readKey(keySource(options)).catch((error: unknown) => {
    if (options.keyEnv !== undefined || options.keyFile !== undefined) throw error;
    return null;
  });
  const name = options.header.toLowerCase();
  if (key !== null) headers[name] = name === 'authorization' ? `Bearer ${key}` : key;
  const live = await readLiveServer({ url: options.url, headers });
  return { lock, live, comparison: comparePins(upstream ?? lock?.upstream ?? options.url.host, lock, live) };
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
  { lock, live, comparison }: Looked,
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
  const beside = `${options.lock}.${process.pid}.new`;
  try {
    await writeFile(beside, renderPinLock(approved.lock));
    await rename(beside, options.lock);
  } finally {
    await rm(beside, { force: true });
  }
  terminal.err(`${options.lock}: ${approved.lock.tools.length} tools are approved.`);
}

async function show(terminal: Terminal, options: ToolsOptions, comparison: PinComparison): Promise<void> {
  if (options.json) return terminal.out(json(wireOf(comparison)));
  const { renderComparison } = await import('../pins/compare.ts');
  const lines = renderComparison(comparison);
  if (lines.length === 0) return terminal.out('Nothing is different.');
  for (const line of lines) {
    const style = /^\s+\+/.test(line) ? 'green' : /^\s+-/.test(line) ? 'red' : 'bold';
    terminal.out(styled(terminal, style, line));
  }
}

function titleOf(tool: { readonly [name: string]: unknown }): string {
  const said = [tool['title'], tool['description']].find((text) => typeof text === 'string');
  return typeof said === 'string' ? printable(said.split('\n')[0] ?? '').slice(0, 80) : '';
}

function wireOf({ upstream, isUnchanged, about, tools }: PinComparison): object {
  return {
    upstream,
    unchanged: isUnchanged,
    about,
    tools: tools.map((state) => ({
      name: state.name,
      state: state.kind,
      ...(state.kind === 'unusable' && { why: state.why }),
      ...(state.kind === 'renamed' && { from: state.from }),
      ...(state.kind === 'changed' && { differences: state.differences }),
      ...('pin' in state && { pinned: state.pin.sha256 }),
      ...('live' in state && { sha256: state.live.sha256 }),
    })),
  };
}
