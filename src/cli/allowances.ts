import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway, toCount } from './command.ts';
import { json, showPage, wire } from './terminal.ts';

/** `svc allowances list|revoke`. They are given by `svc approvals approve --allow-next`. */
export function addAllowances(program: Command, { terminal }: CliContext): void {
  const allowances = program
    .command('allowances')
    .description('calls that are let in without asking, by word of an approver');

  talksToGateway(
    allowances.command('list').description('what was allowed ahead, newest first; what is over, for a day'),
  )
    .option('--limit <n>', 'at most so many', toCount(200), 50)
    .option('--cursor <cursor>', 'go on where the last page ended')
    .action(async (options: GatewayAccess & { readonly limit: number; readonly cursor?: string }) => {
      const { limit, cursor } = options;
      const page = await (await connect(options)).allowances.list({ limit, ...(cursor && { cursor }) });
      if (options.json) return terminal.out(json(wire(page)));
      const names = ['allowance', 'status', 'used', 'until', 'agent', 'tool', 'target', 'given by'];
      const rows = page.allowances.map(({ id, status, used, times, expiresAt, agentId, tool, target, givenBy }) => [
        id,
        status,
        `${used} of ${times}`,
        expiresAt,
        agentId,
        tool,
        target,
        givenBy,
      ]);
      showPage(terminal, page.nextCursor, 'allowances', names, rows);
    });

  talksToGateway(allowances.command('revoke').description('ask about the next call again; what was let in stays'))
    .argument('<id>', 'allowance id')
    .action(async (id: string, options: GatewayAccess) => {
      const allowance = await (await connect(options)).allowances.revoke(id);
      if (options.json) return terminal.out(json(wire(allowance)));
      const { status, used, times } = allowance;
      terminal.out(`It lets nothing in any more (${status}); it let in ${used} of ${times}.`);
    });
}
