import type { LedgerEvent, LedgerFilter, LedgerPage, Svc } from '@svc-gateway/client';
import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway, toCount, toTime } from './command.ts';
import { inShort, json, showPage, wire } from './terminal.ts';

export interface FoundBy {
  readonly kind?: string;
  readonly actor?: string;
  readonly effect?: string;
  readonly agent?: string;
  readonly tool?: string;
  readonly target?: string;
  readonly rule?: string;
  readonly user?: string;
  readonly key?: string;
  readonly since?: string;
  readonly until?: string;
}

interface LedgerOptions extends GatewayAccess, FoundBy {
  readonly installation?: true;
  readonly limit: number;
  readonly cursor?: string;
}

/** `svc ledger`: who did what, and who changed what. */
export function addLedger(program: Command, { terminal }: CliContext): void {
  foundBy(talksToGateway(program.command('ledger').description('events of the append-only ledger, newest first')))
    .option(
      '--installation',
      'of what belongs to no workspace, with an administrative key (--kind user: an auditor’s will do)',
    )
    .option('--limit <n>', 'at most so many', toCount(100_000), 50)
    .option('--cursor <cursor>', 'go on where the last page ended')
    .action(async (options: LedgerOptions) => {
      const { installation, limit, cursor } = options;
      const page = await eventsUpTo(await connect(options), limit, {
        ...(cursor && { cursor }),
        ...filterOf(options),
        ...(installation && { installation }),
      });
      if (options.json) return terminal.out(json(wire(page)));
      // Whoever reads a file or a pipe has no narrow screen: an approval names its passkey, and what was changed, at the end.
      const shown = terminal.interactive ? inShort : (text: string): string => text;
      const rows = page.events.map((event) => eventRow(event, shown));
      showPage(terminal, page.nextCursor, 'events', ['seq', 'at', 'event', 'by', 'effect', 'what it says'], rows);
      if (rows.length === 0 && !installation && OF_INSTALLATION.test(options.kind ?? ''))
        terminal.out(
          `Those of ${options.kind} belong to no workspace: ask for --installation, with an administrative key (user: an auditor's will do).`,
        );
    });
}

/** Adds the options of {@link FoundBy}. */
export function foundBy(command: Command): Command {
  const ofEvents = command
    .option('--kind <kind>', 'a kind of event, or all of one thing: key, pause, policy, …')
    .option('--actor <id>', 'who caused the event')
    .option('--effect <id>', 'about this effect');
  return aboutEffects(ofEvents).option('--until <time>', 'a time (RFC 3339) or a date in UTC, exclusive', toTime);
}

/** Adds those of them that effects and receipts are found by as well, but for the end of the time. */
export function aboutEffects(command: Command): Command {
  return command
    .option('--agent <id>', 'of this agent, or about it')
    .option('--tool <name>', 'about this tool')
    .option('--target <target>', 'about this target')
    .option('--rule <rule>', 'under this rule of policy')
    .option('--user <id>', 'of this user, about the user, or of calls with a key of the user')
    .option('--key <id>', 'about this API key, or of calls with it')
    .option('--since <time>', 'a time (RFC 3339) or a date in UTC, inclusive', toTime);
}

export function filterOf({ kind, actor, effect, agent, tool, target, rule, user, key, since, until }: FoundBy) {
  return {
    ...(kind && { kind }),
    ...(actor && { actor }),
    ...(effect && { effectId: effect }),
    ...(agent && { agentId: agent }),
    ...(tool && { tool }),
    ...(target && { target }),
    ...(rule && { rule }),
    ...(user && { user }),
    ...(key && { keyId: key }),
    ...(since && { since }),
    ...(until && { until }),
  };
}

const PAGE = 200;

/** Reads page after page until there are enough events: a page looks at a part of the ledger only. */
async function eventsUpTo(
  svc: Svc,
  limit: number,
  { installation, ...filter }: LedgerFilter & { readonly installation?: true },
): Promise<LedgerPage> {
  const events: LedgerEvent[] = [];
  let { cursor } = filter;
  for (;;) {
    const asked = { ...filter, limit: Math.min(PAGE, limit - events.length), ...(cursor && { cursor }) };
    const page: LedgerPage = installation ? await svc.ledger.installation(asked) : await svc.ledger.list(asked);
    events.push(...page.events);
    if (page.nextCursor === null || events.length >= limit) return { events, nextCursor: page.nextCursor };
    cursor = page.nextCursor;
  }
}

/** Kinds of events that no workspace has. */
const OF_INSTALLATION = /^(user|policy)(\.|$)/;

function eventRow(
  { seq, at, kind, actor, effectId, data }: LedgerEvent,
  shown: (text: string) => string,
): readonly string[] {
  return [String(seq), at, kind, `${actor.type} ${actor.id}`, effectId ?? '', shown(JSON.stringify(data))];
}
