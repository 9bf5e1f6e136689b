import type { Command } from 'commander';
import { type CliContext } from './command.ts';
import type { FormatReport } from './ports.ts';
import { json, table } from './terminal.ts';

interface MigrateChoice {
  readonly config: string;
  readonly check?: true;
  readonly json?: true;
}

/** `svc migrate`: what format a store has, and what a start would do. There is one format yet: nothing to convert. */
export function addMigrate(program: Command, { ports, terminal, exit }: CliContext): void {
  program
    .command('migrate')
    .description('say what format the store has, and what a start would do; nothing is changed')
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .option('--check', 'the same: no version before this one has a format to bring forward')
    .option('--json', 'print JSON')
    .action(async ({ config, check, json: asJson }: MigrateChoice) => {
      const report = await ports.checkFormat({ configFile: config, environment: {} });
      if (report.start === 'refuses' || (report.start === 'none' && !check)) exit(1);
      terminal.out(asJson ? json({ ...report }) : inWords(report));
    });
}

function inWords({ explanation, records }: FormatReport): string {
  const counted = Object.entries(records ?? {}).map(([name, count]) => [name, String(count)]);
  return [...explanation, ...(counted.length === 0 ? [] : [table(['records', 'count'], counted)])].join('\n');
}
