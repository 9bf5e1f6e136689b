import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { json, wire } from './terminal.ts';

/** `svc console`: a link into the console, so that nobody has to paste a key into a browser. */
export function addConsole(program: Command, { terminal }: CliContext): void {
  talksToGateway(
    program
      .command('console')
      .description('print a link that signs the owner of the key in to the console, once, within five minutes'),
  ).action(async (options: GatewayAccess) => {
    const link = await (await connect(options)).console.link();
    terminal.out(options.json ? json(wire(link)) : link.url);
    if (!options.json)
      terminal.err('Opens once, within five minutes. Do not send it to others: it signs them in as you.');
  });
}
