import { setTimeout as sleep } from 'node:timers/promises';
import type { Effect, EffectPage, Svc } from '@svc-gateway/client';
import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway, toCount } from './command.ts';
import { EFFECT_COLUMNS, effectRow } from './effects.ts';
import { printable } from '../diagnostics/render.ts';
import { json, styled, type Terminal, wire } from './terminal.ts';

interface TailOptions extends GatewayAccess {
  readonly count?: number;
  readonly last: number;
}

const PAGE = 200;
const EVERY_MS = 500;
/** Smallest width of each column, in characters, so that later lines stay aligned with earlier ones. */
const WIDTHS = [30, 24, 12, 20, 20, 0];

/** `svc tail`: decisions as they are made. */
export function addTail(program: Command, { terminal }: CliContext): void {
  talksToGateway(
    program.command('tail').description('decisions as they are made, until interrupted; JSON lines with --json'),
  )
    .option('--last <n>', 'begin with so many that were made before', toCount(PAGE), 10)
    .option('--count <n>', 'end after so many', toCount(1_000_000))
    .action(async (options: TailOptions) => {
      const svc = await connect(options);
      let stop = false;
      void terminal.stopped().then(() => {
        stop = true;
      });
      let left = options.count ?? Number.POSITIVE_INFINITY;
      const first = await svc.effects.list({ limit: options.last });
      const widths = WIDTHS.map((least, column) =>
        Math.max(least, ...first.effects.map((effect) => printable(effectRow(effect)[column] ?? '').length)),
      );
      if (!options.json) terminal.out(styled(terminal, 'dim', aligned(EFFECT_COLUMNS, widths)));
      let seen = show(first.effects);
      while (!stop && left > 0) {
        await sleep(EVERY_MS);
        seen = show(await since(svc, seen), seen);
      }

      /** Prints what was not printed before, oldest first. Returns the effects that the next look may find again. */
      function show(newestFirst: readonly Effect[], before: readonly Effect[] = []): readonly Effect[] {
        const known = new Map(before.map((effect) => [effect.effectId, effect.decision]));
        for (const effect of newestFirst.toReversed()) {
          if (known.get(effect.effectId) === effect.decision || left <= 0) continue;
          terminal.out(options.json ? json(wire(effect), 0) : line(terminal, effect, widths));
          left -= 1;
        }
        const latest = newestFirst.length > 0 ? newestFirst : before;
        return latest.slice(0, PAGE);
      }
    });
}

/** Effects made since the newest one seen, including others of the same millisecond. */
async function since(svc: Svc, seen: readonly Effect[]): Promise<readonly Effect[]> {
  const from = seen.at(0)?.createdAt;
  const effects: Effect[] = [];
  let cursor: string | null = null;
  do {
    const page: EffectPage = await svc.effects.list({
      limit: PAGE,
      ...(from && { since: from }),
      ...(cursor && { cursor }),
    });
    effects.push(...page.effects);
    cursor = page.nextCursor;
  } while (cursor !== null);
  return effects;
}

function line(terminal: Terminal, effect: Effect, widths: readonly number[]): string {
  const color = effect.didItHappen === 'yes' ? 'green' : effect.decision === 'unknown_effect' ? 'red' : 'yellow';
  return effectRow(effect)
    .map((cell, column) => styled(terminal, column === 4 ? color : 'bold', cell) + padding(cell, widths[column]))
    .join('  ')
    .trimEnd();
}

function aligned(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, column) => cell + padding(cell, widths[column]))
    .join('  ')
    .trimEnd();
}

function padding(cell: string, width = 0): string {
  return ' '.repeat(Math.max(0, width - printable(cell).length));
}
