import { type Command, Option } from 'commander';
import type { NotificationDelivery } from '@svc-gateway/client';
import { type CliContext, connect, type GatewayAccess, talksToGateway, toCount } from './command.ts';
import { json, showPage, wire } from './terminal.ts';

interface ListOptions extends GatewayAccess {
  readonly state?: NotificationDelivery['state'];
  readonly limit: number;
  readonly cursor?: string;
}

/** `svc notifications list|resend`: what people were to be told, and what became of it. */
export function addNotifications(program: Command, { terminal }: CliContext): void {
  const notifications = program.command('notifications').description('what people are told of, and what became of it');

  talksToGateway(notifications.command('list').description('notifications, newest first; needs an administrative key'))
    .addOption(new Option('--state <state>', 'only these').choices(['waiting', 'delivered', 'dead']))
    .option('--limit <n>', 'at most so many', toCount(200), 50)
    .option('--cursor <cursor>', 'go on where the last page ended')
    .action(async ({ state, limit, cursor, ...options }: ListOptions) => {
      const svc = await connect(options);
      const page = await svc.notifications.list({ limit, ...(state && { state }), ...(cursor && { cursor }) });
      if (options.json) return terminal.out(json(wire(page)));
      const rows = page.notifications.map((one) => [
        one.id,
        one.event,
        one.receiver,
        one.state,
        String(one.attempts),
        one.lastFailure ?? '',
        one.nextAttemptAt ?? one.endedAt ?? '',
      ]);
      const names = ['notification', 'event', 'receiver', 'state', 'attempts', 'last failure', 'next or end'];
      showPage(terminal, page.nextCursor, 'notifications', names, rows);
    });

  talksToGateway(
    notifications.command('resend').description('have notifications sent again; needs an administrative key'),
  )
    .argument('<id...>', 'notifications of svc notifications list')
    .action(async (ids: readonly string[], options: GatewayAccess) => {
      const svc = await connect(options);
      const resent: NotificationDelivery[] = [];
      for (const id of ids) {
        resent.push(await svc.notifications.resend(id));
        // At once: the next one may fail.
        if (!options.json) terminal.out(`To be sent again: ${id}`);
      }
      if (options.json) terminal.out(json(wire({ notifications: resent })));
    });
}
