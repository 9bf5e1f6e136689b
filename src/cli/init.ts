import { type Command, Option } from 'commander';
import { type CliContext } from './command.ts';

/** The options of `svc init` as the user wrote them. */
export interface InitOptions {
  readonly upstream?: string;
  readonly openapi?: string;
  /** A URL or a command; `true` where the command comes after `--`. */
  readonly mcp?: string | true;
  /** The variable that holds the key of an MCP server, and the header that the key goes in. */
  readonly keyEnv?: string;
  readonly header: string;
  /** Variables that an MCP server gets, by name. */
  readonly env: readonly string[];
  readonly include: readonly string[];
  readonly exclude: readonly string[];
  readonly diff?: true;
  readonly name?: string;
  readonly agent?: string;
  readonly workspace?: string;
  readonly dir: string;
  readonly force?: true;
  readonly yes?: true;
  readonly json?: true;
}

/** `svc init`: writes a first configuration for your own API, or for an MCP server. */
export function addInit(program: Command, context: CliContext): void {
  program
    .command('init')
    .description(
      'write gateway.yaml and policies/first.yaml for an API of your own, where policy only observes at first, or for an MCP server, with its pins',
    )
    .argument('[command...]', 'after --mcp --: the program that is the MCP server, and its arguments')
    .option('--upstream <url>', 'origin of the API, e.g. http://127.0.0.1:9090 (default: from the document)')
    .option(
      '--openapi <file|url>',
      'its OpenAPI or Swagger document, JSON or YAML (default: where the API publishes it)',
    )
    .option(
      '--include <pattern>',
      "only these operations: 'POST /v1/**', an operation id, tag:NAME; repeatable",
      collect,
      [],
    )
    .option('--exclude <pattern>', 'all but these; repeatable', collect, [])
    .addOption(
      new Option(
        '--mcp [url|command]',
        'an MCP server: its URL, its command in quotes, or -- and its command',
      ).conflicts(['upstream', 'openapi', 'include', 'exclude', 'diff']),
    )
    .option('--env <name>', 'variable of yours that the MCP server gets beside PATH and HOME; repeatable', collect, [])
    .option('--key-env <name>', 'variable that holds the key of the MCP server at the URL')
    .option('--header <name>', 'the header that this key goes in (Authorization: as Bearer)', 'Authorization')
    .option('--diff', 'write nothing; show what the document changes in the gateway.yaml that is there')
    .option('--name <id>', 'id of the upstream (default: from the host name)')
    .option('--agent <id>', 'id of the agent (default: agent)')
    .option('--workspace <id>', 'id of the workspace (default: default)')
    .option('--dir <folder>', 'folder of the files and of the store', '.')
    .option('--force', 'overwrite files that are there')
    .option('--yes', 'ask nothing')
    .option('--json', 'print JSON; asks nothing')
    .action(async (words: readonly string[], options: InitOptions) => {
      const { runInit } = await import('../../packages/init/src/init.ts');
      await runInit(words, options, context);
    });
}

function collect(value: string, before: readonly string[]): readonly string[] {
  return [...before, value];
}
