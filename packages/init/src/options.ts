import { join, normalize, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cancel, isCancel, text } from '@clack/prompts';
import type { InitOptions } from '../../../src/cli/init.ts';
import { OWN_PREFIXES } from '../../../src/config/resolve-routes.ts';
import { CommandFailure } from '../../../src/cli/ports.ts';
import { HOME } from '../../../src/home.ts';

/** The origin that `--upstream` names. @throws CommandFailure */
export function toOrigin(given: string): string {
  const url = URL.canParse(given) ? new URL(given) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '')
    throw new CommandFailure(
      '--upstream has to be an http or https URL without credentials, e.g. http://127.0.0.1:9090',
    );
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    throw new CommandFailure(`--upstream has to be an origin: ${url.origin}; paths belong to the tools`);
  return url.origin;
}

/** A suggested id for an upstream: `stripe` for `api.stripe.com`. */
export function upstreamName(origin: string): string {
  const labels = new URL(origin).hostname.split('.');
  const telling = (labels.length > 1 ? labels.slice(0, -1) : labels).find(
    (label) => !['localhost', 'www', 'api', 'app'].includes(label) && /^[A-Za-z][A-Za-z0-9-]{0,30}$/.test(label),
  );
  return telling === undefined || isTaken(telling) ? 'api' : telling;
}

/** The id becomes the prefix of the route and of the tools. The gateway uses some prefixes itself. */
export function isTaken(upstream: string): boolean {
  return upstream === 'svc' || OWN_PREFIXES.includes(`/${upstream.toLowerCase()}`);
}

/** The id of the upstream, given or suggested. @throws CommandFailure if it cannot be one */
export function upstreamId(given: string | undefined, origin: string): string {
  return upstreamNamed(given ?? upstreamName(origin));
}

/** Checks the form of an upstream's id. @throws CommandFailure */
export function upstreamNamed(upstream: string): string {
  if (isTaken(upstream))
    throw new CommandFailure(`'${upstream}' is a name of the gateway's own; name the upstream otherwise with --name`);
  return named('upstream', upstream, /^[A-Za-z][A-Za-z0-9_-]{0,30}$/);
}

/** The workspace, given or the usual one. @throws CommandFailure */
export function workspaceFor({ workspace = 'default' }: InitOptions): string {
  return named('workspace', workspace, /^[a-z0-9][a-z0-9_-]{0,62}$/);
}

/** The agent, given, asked for, or suggested. @throws CommandFailure */
export async function agentFor({ agent }: InitOptions, ask: boolean): Promise<string> {
  const given = agent ?? (ask ? await askAgent() : 'agent');
  return named('agent', given, /^[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}$/);
}

async function askAgent(): Promise<string> {
  const answer = await text({ message: 'What is your agent called?', initialValue: 'agent' });
  return isCancel(answer) ? giveUp() : answer;
}

/** Somebody does not want to answer. @throws CommandFailure */
export function giveUp(): never {
  cancel('Nothing was written.');
  throw new CommandFailure('cancelled');
}

/** Checks the form of an id. @throws CommandFailure */
export function named(what: string, id: string, pattern: RegExp): string {
  if (!pattern.test(id))
    throw new CommandFailure(
      `'${id}' cannot be the id of ${what === 'upstream' || what === 'agent' ? 'an' : 'a'} ${what}`,
    );
  return id;
}

/** `./my-gateway/` becomes `my-gateway`, with `/` on every system. */
export function plainFolder(dir: string): string {
  return normalize(dir)
    .split(sep)
    .join('/')
    .replace(/(?<=.)\/+$/, '');
}

/**
 * How to call `svc` in this folder: by `npx` if that finds it (in its own folder, or where it is installed), else by
 * its path.
 */
export function launcher(): string {
  const home = resolve(fileURLToPath(HOME));
  if (home === process.cwd() || home.includes('node_modules')) return 'npx svc';
  return `node ${shellWord(join(home, 'bin', 'svc.mjs'))}`;
}

/** A word, quoted for a shell if needed. */
export function shellWord(word: string): string {
  return /^[A-Za-z0-9_./:@=+,-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}
