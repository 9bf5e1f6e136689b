import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { json } from './terminal.ts';

interface DiscloseOptions extends GatewayAccess {
  readonly field?: readonly string[];
}

/** `svc effects disclose`: a receipt with what opens it, or a part of it, to be handed to somebody else. */
export function addDisclose(effects: Command, { terminal }: CliContext): void {
  talksToGateway(
    effects
      .command('disclose')
      .description(
        'print a receipt with what opens its commitments, or only some of them, for svc verify --disclosure',
      ),
  )
    .argument('<id>', 'effect id')
    .option(
      '--field <name...>',
      'only these: target, params, params.NAME, idem, request, response, comment, approval.0.comment, …',
    )
    .action(async (id: string, options: DiscloseOptions) => {
      terminal.out(json(await (await connect(options)).effects.disclosure(id, options.field)));
    });
}
