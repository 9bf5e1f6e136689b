import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { printable } from '../diagnostics/render.ts';
import { json, table, wire } from './terminal.ts';

interface ChangeOptions extends GatewayAccess {
  readonly comment?: string;
}

function commentOf({ comment }: ChangeOptions): { readonly comment?: string } {
  return comment === undefined ? {} : { comment };
}

/** `svc policy`: which policies all gateways of a store run. */
export function addPolicy(program: Command, { terminal }: CliContext): void {
  const policy = program.command('policy').description('which policies are in force, on all gateways of the store');

  talksToGateway(policy.command('history').description('what was in force, since when, and who put it there')).action(
    async (options: GatewayAccess) => {
      const history = await (await connect(options)).policies.history();
      if (options.json) return terminal.out(json(wire(history)));
      const rows = history.activations.map(({ version, at, how, by, why, files = [] }) => [
        version === history.inForce ? '*' : '',
        version,
        at,
        how,
        `${by.type} ${by.id}`,
        why ?? files.join(' '),
      ]);
      if (rows.length === 0) terminal.out('Nothing is on record.');
      else terminal.out(table(['', 'version', 'since', 'how', 'by', 'why, or which files'], rows));
      if (history.filesVersion !== history.inForce)
        terminal.out(
          `The files of this gateway (${history.filesVersion ?? 'which cannot be used'}) are not in force. Put them in force with: svc policy activate`,
        );
    },
  );

  talksToGateway(policy.command('show').description('what the policies of a version said, file by file'))
    .argument('<version>', 'one that svc policy history shows')
    .action(async (version: string, options: GatewayAccess) => {
      const shown = await (await connect(options)).policies.show(version);
      if (options.json) return terminal.out(json(shown));
      if (!shown.proven) terminal.err('Not held against its version: it does not fit the configuration of now.');
      for (const { file, text, lists } of shown.files) {
        const named = lists.map((list) => [`# list ${list.name} of ${file}`, list.text ?? ''] as const);
        for (const [title, body] of [[`# ${file}`, text] as const, ...named])
          for (const line of [title, ...body.trimEnd().split('\n')]) terminal.out(printable(line));
      }
    });

  talksToGateway(
    policy
      .command('activate')
      .description('put the policies in the files of the gateway in force, or those of an earlier version')
      .argument('[version]', 'one that svc policy history shows')
      .option('--comment <text>', 'why; stands in the history and the ledger'),
  ).action(async (version: string | undefined, options: ChangeOptions) => {
    const active = await (await connect(options)).policies.activate(version, commentOf(options));
    terminal.out(options.json ? json(wire(active)) : `In force: ${active.version}`);
  });

  talksToGateway(
    policy
      .command('rollback')
      .description('put the policies in force that were in force before these')
      .option('--comment <text>', 'why; stands in the history and the ledger'),
  ).action(async (options: ChangeOptions) => {
    const active = await (await connect(options)).policies.rollback(commentOf(options));
    terminal.out(options.json ? json(wire(active)) : `In force: ${active.version}`);
  });
}
