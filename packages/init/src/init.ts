import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { autocompleteMultiselect, isCancel } from '@clack/prompts';
import { checkFiles } from '../../../src/cli/check-files.ts';
import type { CliContext } from '../../../src/cli/command.ts';
import type { InitOptions } from '../../../src/cli/init.ts';
import { showChanges } from './diff.ts';
import { gatewayFile, type InitChoices, policyFile, makeFolders, refuseToDisturb, schemaUrl } from './files.ts';
import { agentFor, giveUp, launcher, plainFolder, shellWord, toOrigin, upstreamId, workspaceFor } from './options.ts';
import { draftFrom, type Source, sourceOf, tagsOf } from './source.ts';
import type { Draft } from './openapi/draft.ts';
import type { ApiOperation } from './openapi/operations.ts';
import { plainText } from './openapi/words.ts';
import { CommandFailure } from '../../../src/cli/ports.ts';
import { json } from '../../../src/cli/terminal.ts';

/**
 * `svc init`: writes a first configuration for your own API, or for an MCP server.
 * @param words the command after `--`
 */
export async function runInit(words: readonly string[], options: InitOptions, context: CliContext): Promise<void> {
  if (options.mcp !== undefined) return (await import('./mcp-server.ts')).initMcp(options, words, context);
  const [other] = [...words, ...(options.keyEnv === undefined ? [] : ['--key-env']), ...options.env];
  if (other !== undefined) throw new CommandFailure(`'${other}' goes with --mcp only`);
  if (options.diff) await showChanges(options, await sourceOf(options), context);
  else await init(options, context);
}

async function init(options: InitOptions, { terminal, exit }: CliContext): Promise<void> {
  const ask = terminal.interactive && !options.yes && !options.json;
  const folder = plainFolder(options.dir);
  const files = { gateway: join(folder, 'gateway.yaml'), policy: join(folder, 'policies', 'first.yaml') };
  // Report wrong options before asking any questions.
  if (options.upstream !== undefined) upstreamId(options.name, toOrigin(options.upstream));
  const workspace = workspaceFor(options);
  const agent = await agentFor(options, ask);
  if (!options.force) await refuseToDisturb(folder, Object.values(files));
  const from = await sourceOf(options);
  const tagged = ask && options.include.length === 0 ? await askTags(from.operations) : null;
  const drafted = draftFrom(options, from, upstreamId(options.name, from.origin), tagged);
  const choices: InitChoices = {
    upstreams: drafted.upstreams,
    workspace,
    agent,
    folder,
    launcher: launcher(),
    diff: from.found === null ? null : diffWords(options, from.found.name, tagged),
  };
  await write(files, folder, choices, drafted.draft);
  const checked = await checkFiles(files.gateway, { environment: {}, color: terminal.color });
  if (checked.exit !== 0) exit(1);
  if (options.json)
    return terminal.out(
      json({
        files,
        openapi: from.found?.name ?? null,
        faults: from.found?.faults.map((fault) => plainText(fault, 300)) ?? [],
        tools: drafted.draft.tools.length,
        skipped: drafted.draft.leftOut.map(({ operation, why }) => plainText(`${operation}: ${why}`, 200)),
        findings: checked.findings,
      }),
    );
  for (const fault of from.found?.faults ?? []) terminal.err(`svc: ${plainText(fault, 300)}`);
  terminal.out(`Wrote ${files.gateway} and ${files.policy}.`);
  terminal.out(summary(from, drafted.draft));
  if (checked.exit !== 0) terminal.err(checked.text.trimEnd());
  const { launcher: svc } = choices;
  const file = shellWord(files.gateway);
  terminal.out('');
  terminal.out(checked.exit === 0 ? 'Next, in this folder:' : 'Mend that first. Then, in this folder:');
  terminal.out(`  ${svc} start --config ${file}`);
  terminal.out(
    `  ${svc} keys create --config ${file} --kind agent --workspace ${workspace} --agent ${agent} --user operator`,
  );
  for (const { id, base } of drafted.upstreams)
    terminal.out(
      `and point the agent at http://127.0.0.1:8080/${id}${plainText(base, 200)} with the key in X-API-Key.`,
    );
  terminal.out(`The port is server.port in ${files.gateway}. Policy only observes until it says mode: enforce.`);
}

function summary({ found, operations }: Source, { tools, leftOut }: Draft): string {
  if (found === null)
    return 'No OpenAPI document was found: reads pass, writes are refused until you declare them (see the comments).';
  const chosen = tools.length + leftOut.length;
  const others = [
    ...(leftOut.length > 0 ? [`${leftOut.length} left out (named at the end of the file)`] : []),
    ...(chosen < operations.length ? [`${operations.length - chosen} not chosen`] : []),
  ];
  return `${[`${tools.length === 1 ? '1 tool' : `${tools.length} tools`} from ${plainText(found.name, 200)}`, ...others].join(', ')}.`;
}

/** The command line that compares a new version of the document with the files written now. */
function diffWords(options: InitOptions, document: string, tagged: readonly string[] | null): string {
  const include = [...options.include, ...(tagged ?? []).filter((tag) => tag !== '').map((tag) => `tag:${tag}`)];
  return [
    'init',
    '--openapi',
    shellWord(document),
    ...(options.upstream === undefined ? [] : ['--upstream', shellWord(options.upstream)]),
    ...include.flatMap((pattern) => ['--include', shellWord(pattern)]),
    ...options.exclude.flatMap((pattern) => ['--exclude', shellWord(pattern)]),
    ...(options.dir === '.' ? [] : ['--dir', shellWord(options.dir)]),
    '--diff',
  ].join(' ');
}

/** The largest file that the gateway reads, characters. */
const MOST_TEXT = 16_000_000;

async function write(
  files: { readonly gateway: string; readonly policy: string },
  folder: string,
  choices: InitChoices,
  draft: Draft,
): Promise<void> {
  const gateway = gatewayFile(choices, draft, schemaUrl('gateway'));
  if (gateway.length > MOST_TEXT)
    throw new CommandFailure(
      `${draft.tools.length} tools are more than one file holds; choose some with --include or --exclude`,
    );
  await makeFolders(folder);
  await writeFile(files.gateway, gateway);
  await writeFile(files.policy, policyFile(choices, draft, schemaUrl('policy-v1')));
}

/** If a document has more operations than this, and a person is at the terminal, the person chooses by tag. */
const ASK_BEYOND = 60;

/** The tags whose operations become tools; `null` for all of them. */
async function askTags(operations: readonly ApiOperation[]): Promise<readonly string[] | null> {
  const tags = tagsOf(operations);
  if (operations.length <= ASK_BEYOND || tags.length < 2) return null;
  const answer = await autocompleteMultiselect({
    message: `The document has ${operations.length} operations. Which become tools?`,
    options: tags.map(({ tag, count }) => ({
      value: tag,
      label: `${tag === '' ? 'without a tag' : plainText(tag, 60)} (${count})`,
    })),
    initialValues: tags.map(({ tag }) => tag),
    required: true,
    maxItems: 15,
  });
  if (isCancel(answer)) return giveUp();
  return answer.length === tags.length ? null : answer;
}
