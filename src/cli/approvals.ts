import { type Command, Option } from 'commander';
import type { Approval } from '@svc-gateway/client';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { json, table, wire } from './terminal.ts';

interface ListOptions extends GatewayAccess {
  readonly status: Approval['status'];
}

interface DecideOptions extends GatewayAccess {
  readonly comment?: string;
}

/** `svc approvals list|approve|reject`. */
export function addApprovals(program: Command, { terminal }: CliContext): void {
  const approvals = program.command('approvals').description('calls that wait for a person');

  talksToGateway(approvals.command('list').description('requests for approval'))
    .addOption(
      new Option('--status <status>', 'only these')
        .choices(['pending', 'granted', 'rejected', 'expired', 'used'])
        .default('pending'),
    )
    .action(async (options: ListOptions) => {
      const svc = await connect(options);
      const { approvals: found } = await svc.approvals.list({ status: options.status });
      if (options.json) return terminal.out(json(wire({ approvals: found })));
      if (found.length === 0) return terminal.out('None.');
      const rows = found.map((one) => [one.id, one.tool, one.target, one.status, one.expiresAt, one.effectId]);
      terminal.out(table(['approval', 'tool', 'target', 'status', 'expires', 'effect'], rows));
    });

  for (const verb of ['approve', 'reject'] as const) {
    talksToGateway(approvals.command(verb).description(`${verb} one; needs an account key of another user`))
      .argument('<id>', 'approval id')
      .option('--comment <text>', 'kept with the vote')
      .action(async (id: string, options: DecideOptions) => {
        const svc = await connect(options);
        const answer = await svc.approvals[verb](id, options.comment === undefined ? {} : { comment: options.comment });
        const done = verb === 'approve' ? 'Approved' : 'Rejected';
        terminal.out(options.json ? json(wire(answer)) : `${done}: ${id}. The effect: svc effects show <effect>`);
      });
  }
}
