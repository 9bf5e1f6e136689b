import type { PauseScope } from '@svc-gateway/client';
import { type Command, InvalidArgumentError } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { WrongUsage } from './ports.ts';
import { json, table, wire } from './terminal.ts';

interface PauseOptions extends GatewayAccess {
  readonly all?: true;
  readonly tool?: string;
  readonly agent?: string;
  readonly upstream?: string;
  readonly key?: string;
  readonly reason: string;
  readonly for?: number;
  readonly until?: string;
}

const UNIT_MS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `svc pause` and `svc resume`: the stop switches. */
export function addPauses(program: Command, { terminal, exit }: CliContext): void {
  talksToGateway(program.command('pause').description('stop calls: nothing in the scope is admitted any more'))
    .option('--all', 'the whole workspace')
    .option('--tool <glob>', 'tools, e.g. "payments.**"')
    .option('--agent <id>', 'one agent')
    .option('--upstream <id>', 'one upstream')
    .option('--key <id>', 'one API key')
    .requiredOption('--reason <text>', 'why; every refused call shows it')
    .option('--for <duration>', 'ends by itself after, e.g. 30m', toMilliseconds)
    .option('--until <time>', 'ends by itself at, RFC 3339')
    .action(async (options: PauseOptions) => {
      const scope = scopeOf(options);
      if (options.for !== undefined && options.until !== undefined)
        throw new WrongUsage('--for and --until say the same thing twice; give one');
      const until = options.for === undefined ? options.until : new Date(Date.now() + options.for).toISOString();
      const svc = await connect(options);
      const pause = await svc.pauses.set({ scope, reason: options.reason, ...(until !== undefined && { until }) });
      if (options.json) return terminal.out(json(wire(pause)));
      terminal.out(`Paused, ${pause.until === null ? 'until it is resumed' : `until ${pause.until}`}: ${pause.id}`);
      if (pause.warning !== undefined) terminal.out(`Warning: ${pause.warning}`);
    });

  talksToGateway(program.command('resume').description('let calls run again; without an id it lists what is paused'))
    .argument('[id]', 'pause id')
    .option('--all', 'lift every pause of the workspace')
    .action(async (id: string | undefined, options: GatewayAccess & { readonly all?: true }) => {
      const svc = await connect(options);
      const { pauses } = await svc.pauses.list();
      if (id === undefined && !options.all) {
        if (pauses.length > 0) exit(1);
        if (options.json) return terminal.out(json(wire({ pauses })));
        if (pauses.length === 0) return terminal.out('Nothing is paused.');
        const rows = pauses.map((pause) => [pause.id, JSON.stringify(pause.scope), pause.until ?? '', pause.reason]);
        return terminal.out(`${table(['pause', 'scope', 'until', 'reason'], rows)}\nLift one with: svc resume <pause>`);
      }
      const ids = id === undefined ? pauses.map((pause) => pause.id) : [id];
      for (const each of ids) {
        await svc.pauses.lift(each);
        // At once: the next one may fail.
        if (!options.json) terminal.out(`Lifted: ${each}`);
      }
      if (options.json) terminal.out(json({ lifted: ids }));
      else if (ids.length === 0) terminal.out('Nothing is paused.');
    });
}

function scopeOf({ all, tool, agent, upstream, key }: PauseOptions): PauseScope {
  const scopes: PauseScope[] = [];
  if (all) scopes.push({ workspace: true });
  if (tool !== undefined) scopes.push({ tool });
  if (agent !== undefined) scopes.push({ agent });
  if (upstream !== undefined) scopes.push({ upstream });
  if (key !== undefined) scopes.push({ key });
  const [scope] = scopes;
  if (scope === undefined || scopes.length > 1)
    throw new WrongUsage('say what to pause with exactly one of --all, --tool, --agent, --upstream, --key');
  return scope;
}

/** @throws InvalidArgumentError for a text that is no duration */
export function toMilliseconds(text: string): number {
  const [, count, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  const ms = Number(count) * (UNIT_MS[unit ?? ''] ?? Number.NaN);
  if (!(ms > 0)) throw new InvalidArgumentError('A duration is a number and s, m, h or d, e.g. 30m.');
  return ms;
}
