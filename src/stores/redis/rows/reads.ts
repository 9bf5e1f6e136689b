import type { Answer, Listed, ListQuery, RowStore, Seen, SumListed, SumName, Want } from '../../port.ts';
import type { Calls } from '../calls.ts';
import { fieldsOf, textsOf } from '../connection.ts';
import { keyOf } from '../names.ts';
import type { Topology } from '../topology.ts';
import type { Batches } from './batches.ts';
import { createLedgerPages } from './ledger-pages.ts';
import { kindName, namedCounter, stored, unstored } from './names.ts';
import { answerOf, packedChanges, readChange, rowOf, spanOf } from './words.ts';

/** Counters that are read at once, about. */
const COUNTERS_AT_ONCE = 100;

/** The most entries of a list that are read at once. */
const ENTRIES_AT_ONCE = 1000;

/** Rows of one answer: the largest is 1.5 MB. */
const ROWS_AT_ONCE = 8;

/**
 * Reads of the store. Rows and counters on which rules decide are as durable as this gateway's own writes. People are
 * shown what is there, even while nothing is confirmed.
 */
export function createReads(parts: {
  readonly calls: Calls;
  readonly topology: Topology;
  /** For reads: those of one turn of the event loop go together, as changes do. */
  readonly readBatches: Batches;
}): Pick<RowStore, 'read' | 'rows' | 'list' | 'sums' | 'ledger'> {
  const { calls, topology, readBatches } = parts;

  /** What is there, even while nothing is confirmed. */
  async function shown(workspace: string, wants: readonly Want[], sums: readonly SumName[]): Promise<Seen> {
    const reply = await calls.read('commit', workspace, [packedChanges([readChange(workspace, wants, sums)])]);
    if (reply !== null) return seenIn(answerOf(reply[4], Number(reply[1]), Number(reply[2])));
    return {
      now: 0,
      epoch: 0,
      rows: wants.map(({ kind, id }) => ({ kind, id, row: null })),
      counters: sums.map(() => ({ spent: 0, held: 0, rows: 0 })),
    };
  }

  return {
    async read(workspace, wants, sums, isShown = false) {
      if (isShown) return shown(workspace, wants, sums);
      // While nothing is confirmed, fail at once instead of letting the caller wait in vain.
      const fault = topology.primaryOf(workspace).barrier.fault();
      if (fault !== null) throw fault;
      return seenIn(
        await new Promise<Answer>((done, failed) =>
          readBatches.commit(readChange(workspace, wants, sums), done, failed),
        ),
      );
    },
    async rows(workspace, names) {
      const asked = names.slice(0, ROWS_AT_ONCE);
      const { rows } = await shown(workspace, asked, []);
      return asked.map(({ kind, id }) => rows.find((row) => row.kind === kind && row.id === id)?.row ?? null);
    },
    async list(query): Promise<Listed> {
      const reply = await calls.read('list', query.workspace, argumentsOf(query));
      const [, , , , more, ...texts] = reply ?? [];
      const entries = [];
      for (let i = 0; i + 2 < texts.length; i += 3)
        entries.push({ at: Number(texts[i]), id: unstored(String(texts[i + 1])), row: rowOf(String(texts[i + 2])) });
      return { entries, more: more === '1' };
    },
    sums: createSums(calls, shown),
    ledger: createLedgerPages(calls),
  };
}

/** Lists counters, group by group. @param shown reads counters as they are */
function createSums(
  calls: Calls,
  shown: (workspace: string, wants: readonly Want[], sums: readonly SumName[]) => Promise<Seen>,
): RowStore['sums'] {
  /** Counters of a group at one place of a scan, and the next place. */
  async function scanned(workspace: string, group: string, place: string): Promise<readonly [SumListed[], string]> {
    const key = keyOf(workspace, `g:${group}`);
    const [scan] = await calls.commands(workspace, [['ZSCAN', key, place, 'COUNT', COUNTERS_AT_ONCE]]);
    if (!Array.isArray(scan)) throw new TypeError('a scan of figures has another form');
    const ends = [...fieldsOf(textsOf(scan[1]))];
    const values = await calls.commands(
      workspace,
      ends.map(([name]) => ['GET', keyOf(workspace, name)] as const),
    );
    const sums = ends.flatMap(([name, end], index) => {
      // One that was removed meanwhile is left out.
      const [, span, text = ''] = /^(?:\d+ ){5}(\S+) ([^]*)$/.exec(String(values[index])) ?? [];
      return span === undefined
        ? []
        : [{ name: namedCounter(name), span: spanOf(span), group: unstored(group), text: unstored(text), end }];
    });
    const { now, counters } = await shown(workspace, [], sums);
    const listed = sums.flatMap(({ name, group: of, text, end }, index) => {
      const counter = counters[index];
      const counts = end === 'inf' || Number(end) > now;
      return counter === undefined || !counts ? [] : [{ ...counter, group: of, name, text }];
    });
    return [listed, String(scan[0])];
  }

  return async (workspace, limit) => {
    const [groups] = await calls.commands(workspace, [['SMEMBERS', keyOf(workspace, 'groups')]]);
    // While others are added, a counter may come twice.
    const listed = new Map<string, SumListed>();
    for (const group of textsOf(groups)) {
      let place = '0';
      do {
        const [some, next] = await scanned(workspace, group, place);
        for (const sum of some) listed.set(sum.name, sum);
        if (listed.size >= limit) return [...listed.values()].slice(0, limit);
        place = next;
      } while (place !== '0');
    }
    return [...listed.values()];
  };
}

/** What was looked at, as the change could not be made. */
function seenIn(answer: Answer): Seen {
  if (answer.kind === 'done') throw new TypeError('the store has made a change that is never in time');
  const { now, epoch, rows, counters } = answer;
  return { now, epoch, rows, counters };
}

function argumentsOf({ list, kind, order, from, to, after, limit, characters }: ListQuery): readonly string[] {
  const bound = (place: number | null): string => (place === null ? '' : String(place));
  const beyond = after === null ? ['', ''] : [String(after.at), stored(after.id)];
  return [
    stored(list),
    kindName(kind),
    order,
    bound(from),
    bound(to),
    ...beyond,
    String(Math.min(limit, ENTRIES_AT_ONCE)),
    String(characters),
  ];
}
