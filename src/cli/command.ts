import { readFile, stat } from 'node:fs/promises';
import { Svc, SvcError } from '@svc-gateway/client';
import { type Command, InvalidArgumentError } from 'commander';
import { type CliPorts, CommandFailure } from './ports.ts';
import type { Terminal } from './terminal.ts';

export interface CliContext {
  readonly ports: CliPorts;
  readonly terminal: Terminal;
  /** Sets the exit code, one of {@link EXIT_CODES}. */
  readonly exit: (code: 0 | 1 | 2) => void;
}

export interface GatewayAccess {
  readonly url?: string;
  readonly workspace?: string;
  readonly keyFile?: string;
  readonly json?: true;
}

/** Adds the options of {@link GatewayAccess}. */
export function talksToGateway(command: Command): Command {
  return command
    .option('--url <url>', 'the gateway (default: SVC_BASE_URL, else http://127.0.0.1:8080)')
    .option('--workspace <id>', 'the workspace (default: SVC_WORKSPACE, else default)')
    .option('--key-file <file>', 'file that holds the API key (default: the variable SVC_API_KEY)')
    .option('--json', 'print JSON');
}

/**
 * A client for a command's options.
 * @throws SvcError `missing_key`, `invalid_key`, `invalid_url`; CommandFailure when the key file cannot be read
 */
export async function connect(access: GatewayAccess): Promise<Svc> {
  const apiKey = access.keyFile === undefined ? undefined : (await readText(access.keyFile)).trim();
  try {
    return new Svc({
      ...(apiKey !== undefined && { apiKey }),
      ...(access.url !== undefined && { baseUrl: access.url }),
      ...(access.workspace !== undefined && { workspace: access.workspace }),
    });
  } catch (error) {
    if (!(error instanceof SvcError) || error.code !== 'missing_key') throw error;
    // The client's message names options of the client, which the user of a command does not see.
    throw new SvcError('missing_key', 'No API key: set SVC_API_KEY, or name a file that holds it with --key-file');
  }
}

export const NAME_WORKSPACE = 'Name the workspace of the key with --workspace, or in SVC_WORKSPACE.';

/** A text of somebody who does not know which configuration the user named: in the commands that it tells to run, it is. */
export function namingConfig(text: string, config: string | undefined): string {
  const command = /(svc store accept-(?:loss|time))(?! --config [^F])(?: --config FILE)?/g;
  return config === undefined ? text : text.replace(command, (_, words: string) => `${words} --config ${config}`);
}

/** The largest file that a command reads, bytes. Somebody else may have made the file. */
const MOST_FILE = 16 * 1024 * 1024;

/** Text of a file that the user named. @throws CommandFailure when it cannot be read or is too large */
export async function readText(file: string): Promise<string> {
  try {
    const { size } = await stat(file);
    if (size > MOST_FILE) throw new CommandFailure(`${file} is larger than ${MOST_FILE} bytes; nothing was read.`);
    return await readFile(file, 'utf8');
  } catch (error) {
    if (error instanceof CommandFailure) throw error;
    const code = error instanceof Error && 'code' in error ? error.code : null;
    if (code === 'ENOENT') throw new CommandFailure(`There is no file ${file}.`);
    if (code === 'EISDIR') throw new CommandFailure(`${file} is a folder; name a file in it.`);
    throw new CommandFailure(`${file} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
}

export function toPort(text: string): number {
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port > 65_535) throw new InvalidArgumentError('A port is a number from 0 to 65535.');
  return port;
}

/** A date is the beginning of its day in UTC. */
export function toTime(text: string): string {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00Z` : text;
}

/** Reads a count from 1 to `most`. */
export function toCount(most: number): (text: string) => number {
  return (text) => {
    const count = Number(text);
    if (!/^\d+$/.test(text) || count < 1 || count > most) throw new InvalidArgumentError(`A number from 1 to ${most}.`);
    return count;
  };
}
