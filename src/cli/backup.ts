import { constants, setPriority } from 'node:os';
import type { Command } from 'commander';
import { timeToWire } from '../effects/wire/time.ts';
import { type CliContext } from './command.ts';
import type { Restored } from './ports.ts';
import { json, wire } from './terminal.ts';

/** `svc backup` and `svc restore`: copies of the embedded store, made while it serves, and put back. */
export function addBackup(program: Command, { ports, terminal, exit }: CliContext): void {
  program
    .command('backup')
    .description('write a backup of the embedded store, also while the gateway runs')
    .argument('<folder>', 'a folder, which is created; if it is there it has to be empty')
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .option('--json', 'print JSON')
    .action(async (folder: string, { config, json: asJson }: { readonly config: string; readonly json?: true }) => {
      // Whoever calls the gateway meanwhile comes first: a backup only has to be made.
      setPriority(constants.priority.PRIORITY_BELOW_NORMAL);
      const made = await ports.backUpStore({ configFile: config, environment: {} }, folder);
      const { madeAt, transactions, warning } = made;
      if (warning !== null)
        terminal.err(`The backup is whole. That it was made could not be noted beside the store: ${warning}.`);
      if (asJson) return terminal.out(json({ folder, made_at: timeToWire(madeAt), transactions }));
      terminal.out(
        `Written: ${folder}. The master secret and the signing keys are not in it: keep copies of them elsewhere.`,
      );
    });

  program
    .command('restore')
    .description('put a backup in the place of the embedded store; stop the gateway first')
    .argument('<folder>', 'what svc backup wrote')
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .option('--replace', 'put the store that is there aside, and bring over what it shows to have run since')
    .option('--json', 'print JSON')
    .action(
      async (
        folder: string,
        { config, replace, json: asJson }: { readonly config: string; readonly replace?: true; readonly json?: true },
      ) => {
        const restored = await ports.restoreStore({ configFile: config, environment: {} }, folder, replace === true);
        terminal.out(
          asJson ? json(wire({ ...restored, madeAt: timeToWire(restored.madeAt) })) : inWords(restored).join('\n'),
        );
        if (!restored.hasLoss) return;
        exit(1);
        terminal.err(
          `Calls that ran since the backup may be missing: /readyz and svc status say so until somebody has compared the upstreams and run svc store accept-loss --config ${config}.`,
        );
      },
    );
}

function inWords({ madeAt, replaced, transactions, transactionsKnown, carried, warning }: Restored): string[] {
  const missing = Math.max(0, (transactionsKnown ?? 0) - transactions);
  const lines = [`The backup of ${timeToWire(madeAt)} is in place, in a new epoch; start the gateway now.`];
  if (carried?.fault)
    lines.unshift(
      `WARNING: The store that was there could not be read to its end (${carried.fault}). Calls of after ${timeToWire(madeAt)} that are not among those below look new and would be SENT AGAIN, and pauses of after it may be missing: hold agents back until the upstreams were compared.`,
    );
  if (replaced !== null) lines.push(`The store that was there is in ${replaced}.`);
  if (carried !== null)
    lines.push(
      `${carried.unknown} calls had run since: their outcome is unknown now (svc effects list --state unknown), and they are not run again.`,
    );
  if (carried === null && transactionsKnown === null)
    lines.push(
      'It was interrupted before: store.restored on the ledger says what was brought over (svc ledger --installation).',
    );
  if (carried === null && missing > 0)
    lines.push(
      `At least ${missing} transactions since the backup are lost. Calls in them look new: they run again when they are repeated.`,
    );
  if (warning !== null) lines.push(warning);
  return lines;
}
