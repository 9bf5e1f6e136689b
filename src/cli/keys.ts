import { type Command, Option } from 'commander';
import { KEY_KINDS, type KeyKind } from '../effects/principal.ts';
import { type CliContext, withExitCodes } from './command.ts';
import { json } from './terminal.ts';

interface CreateOptions {
  readonly config: string;
  readonly kind: KeyKind;
  readonly workspace?: string;
  readonly agent?: string;
  readonly user?: string;
  readonly profile?: string;
  readonly name?: string;
  readonly json?: true;
}

/** `svc keys create`: a key made directly in the store, also while the gateway runs. */
export function addKeys(program: Command, { ports, terminal }: CliContext): void {
  const keys = program.command('keys').description('API keys');
  const create = keys
    .command('create')
    .description('make a key in the store; it is shown once')
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .addOption(new Option('--kind <kind>', 'what the key is for').choices(KEY_KINDS).makeOptionMandatory())
    .option('--workspace <id>', 'the workspace it belongs to (default: the only one)')
    .option('--agent <id>', 'the agent that an agent key names')
    .option('--user <id>', 'the user it belongs to; without one it cannot decide approvals')
    .option('--profile <name>', 'the profile of a profile key, e.g. mcp_readonly')
    .option('--name <text>', 'a label for people')
    .option('--json', 'print the record as JSON, with the key')
    .action(async (options: CreateOptions) => {
      const { record, key, notice } = await ports.createKey({
        configFile: options.config,
        environment: {},
        kind: options.kind,
        workspace: options.workspace ?? null,
        agent: options.agent ?? null,
        user: options.user ?? null,
        profile: options.profile ?? null,
        name: options.name ?? null,
      });
      if (notice !== null) terminal.err(notice);
      if (options.json) return terminal.out(json({ ...record, key }));
      terminal.err(
        `A key of kind ${options.kind} ${typeof record['id'] === 'string' ? record['id'] : ''}; it is shown this once:`,
      );
      terminal.out(key);
    });
  withExitCodes(create, 'made', 'is not used', 'not made; why stands on standard error');
}
