import { SvcError } from '@svc-gateway/client';
import { Command, CommanderError } from 'commander';
import { InvalidFiles, printable, renderFindings } from '../diagnostics/render.ts';
import { addAllowances } from './allowances.ts';
import { addApprovals } from './approvals.ts';
import { type CliContext, NAME_WORKSPACE, namingConfig } from './command.ts';
import { addConfig } from './config.ts';
import { addDemo } from './demo.ts';
import { addConsole } from './console.ts';
import { addDoctor } from './doctor.ts';
import { addEffects } from './effects.ts';
import { exitCodesOf } from './exit-codes.ts';
import { addExport } from './export.ts';
import { addInit } from './init.ts';
import { addKeys, addPasskeys } from './keys.ts';
import { addLedger } from './ledger.ts';
import { addMcp } from './mcp.ts';
import { addBackup } from './backup.ts';
import { addNotifications } from './notifications.ts';
import { addPauses } from './pauses.ts';
import { addPolicy } from './policy.ts';
import { CommandFailure, type CliPorts, fetchFailure, WrongUsage } from './ports.ts';
import { addStart } from './start.ts';
import { addStatus } from './status.ts';
import { addStore, addMigrate } from './store.ts';
import { addTail } from './tail.ts';
import { json, processTerminal, type Terminal } from './terminal.ts';
import { addTools } from './tools.ts';
import { addVerify, addReceipts } from './verify.ts';

const ADD_COMMANDS = [
  addDemo,
  addInit,
  addStart,
  addDoctor,
  addStatus,
  addConfig,
  addKeys,
  addPasskeys,
  addEffects,
  addLedger,
  addExport,
  addApprovals,
  addAllowances,
  addTail,
  addConsole,
  addPauses,
  addNotifications,
  addPolicy,
  addReceipts,
  addVerify,
  addStore,
  addBackup,
  addMigrate,
  addMcp,
  addTools,
];

/**
 * Runs one command of `svc`.
 * @param argv the words after `svc`
 * @param version of the product
 * @returns the exit code, one of {@link EXIT_CODES}
 */
export async function runCli(
  argv: readonly string[],
  version: string,
  ports: CliPorts,
  terminal: Terminal = processTerminal(),
): Promise<number> {
  let code: number = 0;
  const context: CliContext = {
    ports,
    terminal,
    exit: (given) => {
      code = given;
    },
  };
  const program = new Command('svc')
    .description('svc-gateway: every tool call of an agent happens at most once, within budget, and can be proven')
    .version(version, '--version')
    .addHelpText('afterAll', ({ command }) => exitCodesOf(command))
    .showHelpAfterError('(svc help <command> says more)')
    .configureOutput({
      writeOut: (text) => terminal.out(text.trimEnd()),
      writeErr: (text) => terminal.err(text.trimEnd()),
    })
    .exitOverride();
  for (const add of ADD_COMMANDS) add(program, context);
  try {
    await program.parseAsync(withoutFalseOptions(argv), { from: 'user' });
    return code;
  } catch (error) {
    return explain(error, terminal, argv);
  }
}

/** One digest in 64 begins like an option, of which none has its length: unless it is a value, it moves behind them all. */
function withoutFalseOptions(argv: readonly string[]): string[] {
  const isFalse = (word: string, at: number): boolean => /^-[\w-]{42}$/.test(word) && argv[at - 1] !== '--digest';
  const moved = argv.includes('--') ? [] : argv.filter(isFalse);
  return moved.length === 0 ? [...argv] : [...argv.filter((word, at) => !isFalse(word, at)), '--', ...moved];
}

/** Prints what went wrong to standard error. @returns the exit code for it */
function explain(error: unknown, terminal: Terminal, argv: readonly string[]): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 64;
  const config = argv.find((_, at) => argv[at - 1] === '--config');
  const details = argv.includes('--json') ? detailsOf(error, config) : null;
  if (details !== null) {
    terminal.err(json({ error: details }, 0));
  } else if (error instanceof InvalidFiles) {
    terminal.err(renderFindings(error.findings, error.sources, { color: terminal.color }).trimEnd());
  } else if (error instanceof SvcError) {
    const wait = error.retryAfterMs === null ? '' : ` (in ${Math.ceil(error.retryAfterMs / 1000)} s)`;
    const why = error.code === 'no_answer' ? `: ${printable(fetchFailure(error.cause))}` : '';
    terminal.err(`svc: ${printable(error.message)}${why}${wait} [${error.code}]`);
    // The key may belong to another gateway, and the URL may come from a variable.
    if (error.status === 401 && error.baseUrl !== null)
      terminal.err(`  from the gateway at ${printable(error.baseUrl)}`);
    if (error.code === 'wrong_workspace') terminal.err(`  ${NAME_WORKSPACE}`);
    for (const fault of error.errors) terminal.err(`  ${printable(fault.path || '/')}: ${printable(fault.message)}`);
  } else if (error instanceof CommandFailure) {
    for (const line of namingConfig(error.message, config).split('\n')) terminal.err(`svc: ${printable(line)}`);
  } else {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    terminal.err('svc: a fault of svc itself; please report it with these lines:');
    for (const line of text.split('\n')) terminal.err(`  ${printable(line)}`);
  }
  if (error instanceof WrongUsage) return 64;
  return error instanceof SvcError && error.status > 0 ? 1 : 2;
}

/** The error as an object for `--json`; `null` for a fault of svc itself. */
function detailsOf(error: unknown, config: string | undefined): object | null {
  if (error instanceof SvcError)
    return {
      code: error.code,
      message: error.message,
      status: error.status,
      errors: error.errors,
      request_id: error.requestId,
      retry_after_ms: error.retryAfterMs,
      ...(error.baseUrl !== null && { gateway: error.baseUrl }),
    };
  if (error instanceof CommandFailure) return { code: 'cannot_run', message: namingConfig(error.message, config) };
  if (error instanceof InvalidFiles)
    return { code: 'invalid_files', message: 'The files do not hold.', findings: error.findings };
  return null;
}
