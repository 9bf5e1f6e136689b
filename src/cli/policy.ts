import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { json, table, wire } from './terminal.ts';

/** `svc policy`: which policies all gateways of a store run. */
export function addPolicy(program: Command, { terminal }: CliContext): void {
  const policy = program.command('policy').description('which policies are in force, on all gateways of the store');

  talksToGateway(policy.command('history').description('what was in force, since when, and who put it there')).action(
    async (options: GatewayAccess) => {
      const history = await (await connect(options)).policies.history();
      if (options.json) return terminal.out(json(wire(history)));
      const rows = history.activations.map(({ version, at, how, by }) => [
        version === history.inForce ? '*' : '',
        version,
        at,
        how,
        `${by.type} ${by.id}`,
      ]);
      if (rows.length === 0) terminal.out('Nothing is on record.');
      else terminal.out(table(['', 'version', 'since', 'how', 'by'], rows));
      if (history.filesVersion !== history.inForce)
        terminal.out(
          `The files of this gateway (${history.filesVersion ?? 'which cannot be used'}) are not in force. Put them in force with: svc policy activate`,
        );
    },
  );

  talksToGateway(
    policy
      .command('activate')
      .description('put the policies in the files of the gateway in force, or those of an earlier version')
      .argument('[version]', 'one that svc policy history shows'),
  ).action(async (version: string | undefined, options: GatewayAccess) => {
    const active = await (await connect(options)).policies.activate(version);
    terminal.out(options.json ? json(wire(active)) : `In force: ${active.version}`);
  });

  talksToGateway(
    policy.command('rollback').description('put the policies in force that were in force before these'),
  ).action(async (options: GatewayAccess) => {
    const active = await (await connect(options)).policies.rollback();
    terminal.out(options.json ? json(wire(active)) : `In force: ${active.version}`);
  });
}
