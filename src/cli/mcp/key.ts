import { type Command, InvalidArgumentError, Option } from 'commander';
import { environmentLookup } from '../../config/environment.ts';
import { readText } from '../command.ts';
import { CommandFailure, WrongUsage } from '../ports.ts';
import type { KeySource } from './client-snippets.ts';

/** Options that name a key, and never hold it: other users of the machine can read arguments. */
export interface KeyOptions {
  readonly keyEnv?: string;
  readonly keyFile?: string;
}

/**
 * Adds the options of {@link KeyOptions}.
 * @param whose key it is: the gateway's own is in `SVC_API_KEY` where nothing is named; nobody else ever gets that one
 */
export function withKeyOptions(command: Command, whose: 'the gateway' | 'a server'): Command {
  const byDefault = whose === 'the gateway' ? ' (default: SVC_API_KEY)' : '';
  return command
    .addOption(new Option('--key-env <name>', `variable that holds the key${byDefault}`).conflicts('keyFile'))
    .option('--key-file <file>', 'file that holds the key');
}

/** Where the gateway's key is. @throws CommandFailure where the name of a variable is none */
export function keySource(options: KeyOptions): KeySource {
  return namedKey(options) ?? { kind: 'variable', name: 'SVC_API_KEY' };
}

/** Where a key is that the options name; `null` where they name none. @throws CommandFailure as {@link keySource} */
export function namedKey({ keyEnv: name, keyFile }: KeyOptions): KeySource | null {
  if (keyFile !== undefined) return { kind: 'file', file: keyFile };
  if (name === undefined) return null;
  // Somebody may have given the key itself. It is not repeated: the message may stand in a log.
  if (!/^[A-Za-z_]\w*$/.test(name) || /^svc_(?:acct|agent|admin|mcp)_/i.test(name))
    throw new WrongUsage('--key-env takes the name of a variable, not the key: arguments can be read by others.');
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
