import { type Command, InvalidArgumentError, Option } from 'commander';
import { environmentLookup } from '../../config/environment.ts';
import { readText } from '../command.ts';
import { CommandFailure } from '../ports.ts';
import type { KeySource } from './client-snippets.ts';

/** Options that name a key, and never hold it: other users of the machine can read arguments. */
export interface KeyOptions {
  readonly keyEnv?: string;
  readonly keyFile?: string;
}

/** Adds the options of {@link KeyOptions}. */
export function withKeyOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--key-env <name>', 'variable that holds the key (default: SVC_API_KEY)').conflicts('keyFile'),
    )
    .option('--key-file <file>', 'file that holds the key');
}

/** @throws CommandFailure where the name of a variable is none */
export function keySource({ keyEnv, keyFile }: KeyOptions): KeySource {
  if (keyFile !== undefined) return { kind: 'file', file: keyFile };
  const name = keyEnv ?? 'SVC_API_KEY';
  // Somebody may have given the key itself. It is not repeated: the message may stand in a log.
  if (!/^[A-Za-z_]\w*$/.test(name) || /^svc_(?:acct|agent|admin|mcp)_/i.test(name))
    throw new CommandFailure('--key-env takes the name of a variable, not the key: arguments can be read by others.');
  return { kind: 'variable', name };
}

/** @throws CommandFailure, which never repeats the key */
export async function readKey(source: KeySource): Promise<string> {
  const found = source.kind === 'file' ? await readText(source.file) : (environmentLookup({})(source.name) ?? '');
  const key = found.trim();
  const where = source.kind === 'file' ? `The file ${source.file}` : `The variable ${source.name}`;
  if (key === '') throw new CommandFailure(`${where} holds no key.`);
  if (!/^[\x21-\x7e]+$/.test(key)) throw new CommandFailure(`${where} holds something that is no key.`);
  return key;
}

/** Reads the URL of an MCP server from the command line. */
export function toMcpUrl(text: string): URL {
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
