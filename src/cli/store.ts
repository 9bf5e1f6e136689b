import type { Command } from 'commander';
import type { CliContext } from './command.ts';
import type { FormatReport } from './ports.ts';
import { json, table } from './terminal.ts';

interface StoreChoice {
  readonly config: string;
  readonly json?: true;
}

/** `svc store` and `svc fsck`: an operator checks and repairs a store. */
export function addStore(program: Command, context: CliContext): void {
  const { ports, terminal } = context;
  const store = program.command('store').description('what only an operator can decide about the store');

  store
    .command('accept-loss')
    .description(
      'go on, in a new epoch, with a store that was emptied or set back; stop the gateway that is here first; or acknowledge what a restore could not bring over',
    )
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .option('--json', 'print JSON')
    .action(async ({ config, json: asJson }: StoreChoice) => {
      const awaited = await ports.acceptLoss({ configFile: config, environment: {} });
      if (asJson) return terminal.out(json({ accepted: true, awaited }));
      terminal.out('The loss is accepted, and what this gateway’s journal holds is handed in; start it now.');
      if (awaited.length > 0)
        terminal.out(
          `Writes wait for the journal of ${awaited.join(', ')}: a gateway that runs hands in by itself. One that is gone for good is declared lost with svc store recover --lost.`,
        );
    });

  store
    .command('accept-time')
    .description(
      'take the clock of this machine, or of the Redis servers, for right, however far it is ahead of the last time that is known',
    )
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .option('--json', 'print JSON')
    .action(async ({ config, json: asJson }: StoreChoice) => {
      const accepted = await ports.acceptClock({ configFile: config, environment: {} });
      const before = new Date(accepted.before).toISOString();
      const now = new Date(accepted.time).toISOString();
      if (asJson) return terminal.out(json({ before, accepted: now }));
      terminal.out(`The store goes on from ${now}; before, it was ${before} there. A gateway that runs takes it up.`);
    });

  store
    .command('recover')
    .description('declare that the journal of a gateway is lost: writes no longer wait for it')
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .requiredOption('--lost <gateway>', 'the gateway that /readyz names')
    .option('--json', 'print JSON')
    .action(async ({ config, lost, json: asJson }: StoreChoice & { readonly lost: string }) => {
      await ports.recoverLost({ configFile: config, environment: {} }, lost);
      if (asJson) return terminal.out(json({ lost }));
      terminal.out(`Writes no longer wait for ${lost}.`);
    });

  addFsck(program, context);
}

function addFsck(program: Command, { ports, terminal, exit }: CliContext): void {
  program
    .command('fsck')
    .description('compute states and budgets anew from the ledger and compare; changes no figure')
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .option('--json', 'print JSON')
    .action(async ({ config, json: asJson }: StoreChoice) => {
      const differences = await ports.checkStore({ configFile: config, environment: {} });
      if (differences.length > 0) exit(1);
      if (asJson) return terminal.out(json({ differences: differences.map((one) => ({ ...one })) }));
      if (differences.length === 0) return terminal.out('The store is as its ledger says.');
      const rows = differences.map((one) => [one.workspace, one.what, one.where, one.ledger, one.store]);
      terminal.out(table(['workspace', 'what', 'where', 'ledger', 'store'], rows));
    });
}

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
