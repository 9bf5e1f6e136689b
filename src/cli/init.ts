import { access, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join, normalize, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cancel, isCancel, text } from '@clack/prompts';
import type { Command } from 'commander';
import { parse } from 'yaml';
import { OWN_PREFIXES } from '../config/resolve-routes.ts';
import { isJsonObject, type Json, type JsonObject } from '../effects/json.ts';
import { checkFiles } from './check-files.ts';
import { type CliContext, withExitCodes } from './command.ts';
import { gatewayFile, type InitChoices, policyFile } from './init-files.ts';
import { draftTools, plainText } from './openapi-draft.ts';
import { CommandFailure } from './ports.ts';
import { json } from './terminal.ts';

interface InitOptions {
  readonly upstream: string;
  readonly name?: string;
  readonly agent?: string;
  readonly workspace?: string;
  readonly dir: string;
  readonly force?: true;
  readonly yes?: true;
  readonly json?: true;
}

/** Paths where APIs usually publish their OpenAPI document. `svc init` requests only these, with GET. */
const DOCUMENT_PATHS = ['/openapi.json', '/openapi.yaml', '/v3/api-docs', '/swagger.json', '/api/openapi.json'];
const DOCUMENT_MOST = 5 * 1024 * 1024;

/** `svc init`: writes a first configuration for your own API. */
export function addInit(program: Command, { terminal, exit }: CliContext): void {
  const command = program
    .command('init')
    .description('write gateway.yaml and policies/first.yaml for an API of your own; policy only observes at first')
    .requiredOption('--upstream <url>', 'origin of the API, e.g. http://127.0.0.1:9090')
    .option('--name <id>', 'id of the upstream (default: from the host name)')
    .option('--agent <id>', 'id of the agent (default: agent)')
    .option('--workspace <id>', 'id of the workspace (default: default)')
    .option('--dir <folder>', 'folder of the files and of the store', '.')
    .option('--force', 'overwrite files that are there')
    .option('--yes', 'ask nothing')
    .option('--json', 'print JSON; asks nothing')
    .action(async (options: InitOptions) => {
      const upstreamUrl = toOrigin(options.upstream);
      const ask = terminal.interactive && !options.yes && !options.json;
      const folder = plainFolder(options.dir);
      const upstream = options.name ?? upstreamName(upstreamUrl);
      if (isTaken(upstream))
        throw new CommandFailure(
          `'${upstream}' is a name of the gateway's own; name the upstream otherwise with --name`,
        );
      const choices: InitChoices = {
        upstreamUrl,
        upstream: named('upstream', upstream, /^[A-Za-z][A-Za-z0-9_-]{0,30}$/),
        workspace: named('workspace', options.workspace ?? 'default', /^[a-z0-9][a-z0-9_-]{0,62}$/),
        agent: named(
          'agent',
          options.agent ?? (ask ? await askAgent() : 'agent'),
          /^[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}$/,
        ),
        folder,
      };
      const files = { gateway: join(folder, 'gateway.yaml'), policy: join(folder, 'policies', 'first.yaml') };
      if (!options.force) await refuseToDisturb(folder, files);
      const found = await findDocument(upstreamUrl);
      const draft = found === null ? { tools: [], skipped: [] } : draftTools(found.document, choices.upstream);
      await mkdir(join(folder, 'policies'), { recursive: true });
      // The folder will hold the master secret and the first key. They must not end up in version control.
      await mkdir(join(folder, 'data'), { recursive: true, mode: 0o700 });
      await writeFile(join(folder, 'data', '.gitignore'), '*\n');
      await writeFile(files.gateway, gatewayFile(choices, draft, schemaUrl('gateway')));
      await writeFile(files.policy, policyFile(choices, draft, schemaUrl('policy-v1')));
      if (options.json)
        return terminal.out(
          json({
            files,
            openapi: found?.url ?? null,
            tools: draft.tools.length,
            skipped: draft.skipped.map((one) => plainText(one, 200)),
          }),
        );
      terminal.out(`Wrote ${files.gateway} and ${files.policy}.`);
      terminal.out(
        found === null
          ? 'No OpenAPI document was found: reads pass, writes are refused until you declare them (see the comments).'
          : `${draft.tools.length} tools from ${found.url}${draft.skipped.length > 0 ? `, ${draft.skipped.length} left out (named at the end of the file)` : ''}.`,
      );
      const checked = await checkFiles(files.gateway, { environment: {}, color: terminal.color });
      if (checked.exit !== 0) {
        terminal.err(checked.text.trimEnd());
        exit(1);
      }
      terminal.out('');
      terminal.out(checked.exit === 0 ? 'Next, in this folder:' : 'Mend that first. Then, in this folder:');
      terminal.out(`  npx svc start --config ${files.gateway}`);
      terminal.out(
        `  npx svc keys create --config ${files.gateway} --kind agent --workspace ${choices.workspace} --agent ${choices.agent} --user operator`,
      );
      terminal.out(`and point the agent at http://127.0.0.1:8080/${choices.upstream} with the key in X-API-Key.`);
      terminal.out(`The port is server.port in ${files.gateway}. Policy only observes until it says mode: enforce.`);
      const home = fileURLToPath(new URL('../..', import.meta.url));
      if (resolve(home) !== process.cwd() && !home.includes('node_modules'))
        terminal.out(`npx svc works in ${resolve(home)}; here say node ${join(home, 'bin', 'svc.mjs')} instead.`);
    });
  withExitCodes(command, 'written', 'written, but the configuration has findings', 'not written');
}

function toOrigin(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '')
    throw new CommandFailure(
      '--upstream has to be an http or https URL without credentials, e.g. http://127.0.0.1:9090',
    );
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    throw new CommandFailure(`--upstream has to be an origin: ${url.origin}; paths belong to the tools`);
  return url.origin;
}

function upstreamName(origin: string): string {
  const label = new URL(origin).hostname.split('.')[0] ?? '';
  const isOwn = ['localhost', 'www', 'api'].includes(label) || isTaken(label);
  return /^[A-Za-z][A-Za-z0-9-]*$/.test(label) && !isOwn ? label : 'api';
}

/** The id becomes the prefix of the route and of the tools. Some prefixes belong to the gateway itself. */
function isTaken(upstream: string): boolean {
  return upstream === 'svc' || OWN_PREFIXES.includes(`/${upstream.toLowerCase()}`);
}

function named(what: string, id: string, pattern: RegExp): string {
  if (!pattern.test(id))
    throw new CommandFailure(
      `'${id}' cannot be the id of ${what === 'upstream' || what === 'agent' ? 'an' : 'a'} ${what}`,
    );
  return id;
}

async function askAgent(): Promise<string> {
  const answer = await text({ message: 'What is your agent called?', initialValue: 'agent' });
  if (!isCancel(answer)) return answer;
  cancel('Nothing was written.');
  throw new CommandFailure('cancelled');
}

/** `./my-gateway/` becomes `my-gateway`, with `/` on every system. */
function plainFolder(dir: string): string {
  return normalize(dir)
    .split(sep)
    .join('/')
    .replace(/(?<=.)\/+$/, '');
}

/** Refuses to overwrite files, and to put policies in force that belong to another configuration. */
async function refuseToDisturb(
  folder: string,
  files: { readonly gateway: string; readonly policy: string },
): Promise<void> {
  for (const file of Object.values(files))
    if (await exists(file)) throw new CommandFailure(`${file} is there already; --force overwrites it`);
  const policies = join(folder, 'policies');
  const [other] = (await readdir(policies).catch(() => [])).filter((name) => /\.ya?ml$/.test(name));
  if (other !== undefined)
    throw new CommandFailure(
      `${join(policies, other)} is there already and would be in force too; name a folder of its own, e.g. --dir my-gateway`,
    );
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}

/** The first OpenAPI document that the API publishes; `null` when there is none. */
async function findDocument(origin: string): Promise<{ readonly url: string; readonly document: JsonObject } | null> {
  for (const path of DOCUMENT_PATHS) {
    const url = origin + path;
    try {
      const answer = await fetch(url, { redirect: 'error', signal: AbortSignal.timeout(3000) });
      const body = answer.ok ? await textUpTo(answer, DOCUMENT_MOST) : '';
      if (body === '') continue;
      const document: Json = parse(body, { maxAliasCount: 0 });
      if (isJsonObject(document) && isJsonObject(document['paths'])) return { url, document };
    } catch (error) {
      if (error instanceof TypeError && !(await answers(origin)))
        throw new CommandFailure(`nothing answers at ${origin}; start the API first, or check the URL`);
    }
  }
  return null;
}

/** The text of an answer. Reads at most `most` bytes; a longer answer gives an empty text. */
async function textUpTo(answer: Response, most: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of answer.body ?? []) {
    length += chunk.byteLength;
    // Returning from the loop closes the connection.
    if (length > most) return '';
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

async function answers(origin: string): Promise<boolean> {
  return fetch(origin, { method: 'HEAD', redirect: 'manual', signal: AbortSignal.timeout(3000) }).then(
    () => true,
    () => false,
  );
}

/** The schema files that come with the product. Editors use them to complete and check. */
function schemaUrl(name: string): string {
  return new URL(`../../schemas/${name}.schema.json`, import.meta.url).href;
}
