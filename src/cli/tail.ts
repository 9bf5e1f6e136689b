import { setTimeout as sleep } from 'node:timers/promises';
import type { Effect, PassedRead, PassedReadPage, Svc } from '@svc-gateway/client';
import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway, toCount } from './command.ts';
import { EFFECT_COLUMNS, effectRow } from './effects.ts';
import { allEffects, PAGE } from './effects-resolve.ts';
import { printable } from '../diagnostics/render.ts';
import { json, styled, type Terminal, wire } from './terminal.ts';

const EVERY_MS = 500;
/** Smallest width of each column, in characters, so that later lines stay aligned with earlier ones. */
const WIDTHS = [30, 24, 12, 20, 20, 0];

/** `svc tail`: decisions as they are made, and reads that pass, added up. */
export function addTail(program: Command, { terminal }: CliContext): void {
  talksToGateway(
    program
      .command('tail')
      .description('decisions as they are made, and reads that pass, until interrupted; JSON lines with --json'),
  )
    .option('--last <n>', 'begin with so many that were made before', toCount(PAGE), 10)
    .option('--count <n>', 'end after so many', toCount(1_000_000))
    .action(async (options: GatewayAccess & { readonly count?: number; readonly last: number }) => {
      const svc = await connect(options);
      let stop = false;
      void Promise.race([terminal.stopped(), terminal.unread()]).then(() => {
        stop = true;
      });
      let left = options.count ?? Number.POSITIVE_INFINITY;
      const first = await svc.effects.list({ limit: options.last });
      const widths = WIDTHS.map((least, column) =>
        Math.max(least, ...first.effects.map((effect) => printable(effectRow(effect)[column] ?? '').length)),
      );
      if (!options.json) terminal.out(styled(terminal, 'dim', aligned(EFFECT_COLUMNS, widths)));
      let seen = show(first.effects);
      // Reads are sums of a second. Those from before are not shown.
      let lastRead = (await readsAfter(svc, null)).at(0)?.seq ?? 0;
      while (!stop && left > 0) {
        await sleep(EVERY_MS);
        const from = seen.at(0)?.createdAt;
        // Others of the same millisecond as the newest one seen are among them.
        seen = show(await allEffects(svc, from === undefined ? {} : { since: from }), seen);
        const reads = await readsAfter(svc, lastRead);
        lastRead = reads.at(0)?.seq ?? lastRead;
        for (const read of reads.toReversed()) {
          if (left <= 0) break;
          terminal.out(options.json ? json(wire(read), 0) : readLine(terminal, read, widths));
          left -= 1;
        }
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

/** How many pages of the ledger are looked through for reads: whoever looks twice a second needs one. */
const MOST_READ_PAGES = 20;

/** Reads that were put on record after one, newest first; without one, the newest that a look finds. */
async function readsAfter(svc: Svc, seq: number | null): Promise<readonly PassedRead[]> {
  const reads: PassedRead[] = [];
  let cursor: string | null = null;
  for (let pages = 0; pages < (seq === null ? 1 : MOST_READ_PAGES); pages += 1) {
    const page: PassedReadPage = await svc.effects.reads({ limit: PAGE, ...(cursor && { cursor }) });
    const newer = page.reads.filter((read) => seq === null || read.seq > seq);
    reads.push(...newer);
    // A page of other events has no reads. Where the cursor is at or below the last one seen, no newer ones follow.
    cursor = page.nextCursor;
    if (newer.length < page.reads.length || cursor === null || Number.parseInt(cursor, 36) <= (seq ?? 0)) break;
  }
  return reads;
}

function readLine(terminal: Terminal, read: PassedRead, widths: readonly number[]): string {
  const { count, lastAt, agentId, tool, upstream, statuses, observed } = read;
  const answered = Object.entries(statuses).map(([status, times]) => `${times} × ${status}`);
  const policy = observed === null ? '' : `, policy: ${observed.would}`;
  const times = count === 1 ? '1 read' : `${count} reads`;
  const cells = [times, lastAt, agentId, tool ?? `${upstream}.(undeclared)`, 'passed', answered.join(', ') + policy];
  return aligned(cells, widths, (cell, column) => styled(terminal, column === 4 ? 'green' : 'bold', cell));
}

function line(terminal: Terminal, effect: Effect, widths: readonly number[]): string {
  const color = effect.didItHappen === 'yes' ? 'green' : effect.decision === 'unknown_effect' ? 'red' : 'yellow';
  return aligned(effectRow(effect), widths, (cell, column) => styled(terminal, column === 4 ? color : 'bold', cell));
}

function aligned(
  cells: readonly string[],
  widths: readonly number[],
  shown: (cell: string, column: number) => string = (cell) => cell,
): string {
  const padding = (cell: string, width = 0): string => ' '.repeat(Math.max(0, width - printable(cell).length));
  return cells
    .map((cell, column) => shown(cell, column) + padding(cell, widths[column]))
    .join('  ')
    .trimEnd();
}
