import type { Listed, ListQuery, RowStore, Seen, SumListed, SumName, Want } from '../../port.ts';
import type { Calls } from '../calls.ts';
import { textsOf } from '../connection.ts';
import { keyOf } from '../names.ts';
import type { ScriptName } from '../scripts.ts';
import type { Topology } from '../topology.ts';
import { createLedgerPages } from './ledger-pages.ts';
import { kindName, namedFigure, stored, unstored } from './names.ts';
import { figuresOf, numbersOf, rowOf, rowsOf, wordsOfWants } from './words.ts';

/** Figures of one script call. */
const FIGURES_AT_ONCE = 100;

type Reads = Pick<RowStore, 'list' | 'sums' | 'ledger'> & {
  read(workspace: string, wants: readonly Want[], sums: readonly SumName[], isShown?: boolean): Promise<Seen>;
};

/**
 * Reads of the store. Rows and figures on which rules decide are as durable as this gateway's own writes. People are
 * shown what is there, even while nothing is confirmed.
 */
export function createReads(parts: {
  readonly calls: Calls;
  readonly topology: Topology;
  readonly observe: (now: number) => void;
}): Reads {
  const { calls, topology } = parts;

  /** A reply; `null` if nothing was ever written in the workspace. */
  async function ask(name: ScriptName, workspace: string, args: readonly string[]): Promise<readonly unknown[] | null> {
    const reply = await calls.read(name, workspace, args);
    return reply[0] === 'ok' ? reply : null;
  }

  return {
    async read(workspace, wants, sums, isShown = false) {
      const { barrier } = topology.primaryOf(workspace);
      const words = wordsOfWants(wants, sums);
      if (isShown) return seenIn(await ask('read', workspace, words), wants, sums);
      // While nothing is confirmed, fail at once instead of letting the caller wait in vain.
      const fault = barrier.fault();
      if (fault !== null) throw fault;
      const seen = seenIn(await calls.evaluate('read', workspace, words), wants, sums);
      parts.observe(seen.now);
      await topology.primaryOf(workspace).barrier.wait(workspace, String(seen.epoch));
      return seen;
    },
    async list(query): Promise<Listed> {
      const reply = await ask('list', query.workspace, argumentsOf(query));
      const [, , , , more, ...texts] = reply ?? [];
      const entries = [];
      for (let i = 0; i + 2 < texts.length; i += 3)
        entries.push({ at: Number(texts[i]), id: unstored(String(texts[i + 1])), row: rowOf(String(texts[i + 2])) });
      return { entries, more: more === '1' };
    },
    async sums(workspace, limit) {
      const [groups] = await calls.commands(workspace, [['SMEMBERS', keyOf(workspace, 'groups')]]);
      // While others are added, a figure may come twice.
      const listed = new Map<string, SumListed>();
      for (const group of textsOf(groups)) {
        let place = '0';
        do {
          const reply = await ask('figures', workspace, ['list', String(FIGURES_AT_ONCE), group, place]);
          const [, , , , next = '0', ...texts] = reply ?? [];
          for (let i = 0; i + 2 < texts.length; i += 3) {
            const [figure] = figuresOf(numbersOf(texts[i + 2]));
            if (figure === undefined) throw new TypeError('a figure of the store has another form');
            const [name, text] = texts.slice(i, i + 2).map(String);
            const own = namedFigure(name ?? '');
            listed.set(own, { ...figure, group: unstored(group), name: own, text: unstored(text ?? '') });
          }
          if (listed.size >= limit) return [...listed.values()].slice(0, limit);
          place = String(next);
        } while (place !== '0');
      }
      return [...listed.values()];
    },
    ledger: createLedgerPages(calls),
  };
}

/** @param reply `null` if nothing was ever written */
function seenIn(reply: readonly unknown[] | null, wants: readonly Want[], sums: readonly SumName[]): Seen {
  if (reply === null)
    return {
      now: 0,
      epoch: 0,
      rows: wants.map(({ kind, id }) => ({ kind, id, row: null })),
      figures: sums.map(() => ({ spent: 0, held: 0, rows: 0 })),
    };
  const [, now, epoch, , figures, ...rows] = reply;
  return { now: Number(now), epoch: Number(epoch), rows: rowsOf(rows), figures: figuresOf(numbersOf(figures)) };
}

function argumentsOf({ list, kind, order, from, to, after, limit, characters }: ListQuery): readonly string[] {
  const bound = (place: number | null): string => (place === null ? '' : String(place));
  const beyond = after === null ? ['', ''] : [String(after.at), stored(after.id)];
  return [stored(list), kindName(kind), order, bound(from), bound(to), ...beyond, String(limit), String(characters)];
}
