import type { Command } from 'commander';
import { type CliContext, withExitCodes } from './command.ts';
import type { FormatReport } from './ports.ts';
import { json, table } from './terminal.ts';

interface MigrateChoice {
  readonly config: string;
  readonly check?: true;
  readonly json?: true;
}

/** `svc migrate`: brings a store to the format of this program, or says what a start would do. */
export function addMigrate(program: Command, { ports, terminal, exit }: CliContext): void {
  const migrate = program
    .command('migrate')
    .description('bring the store to the format of this version, as the next start does; stop the gateway first')
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .option('--check', 'change nothing: say what the format is, what a start would do, and how many records there are')
    .option('--json', 'print JSON')
    .action(async ({ config, check, json: asJson }: MigrateChoice) => {
      const options = { configFile: config, environment: {} };
      const report = await (check ? ports.checkFormat(options) : ports.migrateStore(options));
      if (report.start === 'refuses' || (report.start === 'none' && !check)) exit(1);
      terminal.out(asJson ? json({ ...report }) : inWords(report));
    });
  withExitCodes(
    migrate,
    'a start opens the store, or brings it forward',
    'a start refuses it, or there is no migration',
    'could not run',
  );
}

function inWords({ explanation, records }: FormatReport): string {
  const counted = Object.entries(records ?? {}).map(([name, count]) => [name, String(count)]);
  return [...explanation, ...(counted.length === 0 ? [] : [table(['records', 'count'], counted)])].join('\n');
}
