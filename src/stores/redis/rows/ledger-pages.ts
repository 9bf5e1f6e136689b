import type { LedgerEntry, RowStore } from '../../port.ts';
import type { Calls } from '../calls.ts';
import { textsOf } from '../connection.ts';
import { keyOf } from '../names.ts';
import { aboutName, namedAbout, SAME_ABOUT, unstored } from './names.ts';

/** How many steps are read at once; each has the events of its changes. */
const STEPS = 20;

/**
 * The ledger is a stream with one entry per step. Its id is the place of the step's first event; time and epoch come
 * before the events. An event that is about the same as the one before it in the entry says only that.
 */
export function createLedgerPages(calls: Calls): RowStore['ledger'] {
  const streamOf = (workspace: string): string => keyOf(workspace, 'l');

  async function ofOne(workspace: string, places: readonly number[]): Promise<readonly LedgerEntry[]> {
    const stream = streamOf(workspace);
    const found = await calls.commands(
      workspace,
      places.map((place) => ['XREVRANGE', stream, `${place}-0`, '-', 'COUNT', 1] as const),
    );
    return found.flatMap((entries, index) => eventsOf(entries).filter(({ seq }) => seq === places[index]));
  }

  return async ({ workspace, about, order, after, limit }) => {
    const isDown = order === 'down';
    const isBeyond = (seq: number): boolean => after === null || (isDown ? seq < after : seq > after);
    if (about !== null) {
      const [text] = await calls.commands(workspace, [['GET', keyOf(workspace, `a:${aboutName(about)}`)]]);
      const places = (typeof text === 'string' ? text.trimEnd().split(' ') : []).map(Number).filter(isBeyond);
      return ofOne(workspace, (isDown ? places.toReversed() : places).slice(0, limit));
    }
    const stream = streamOf(workspace);
    const events: LedgerEntry[] = [];
    let from = isDown ? (after === null ? '+' : `${after}-0`) : '-';
    if (!isDown && after !== null) {
      // The step that contains this place may have further events after it.
      const [before] = await calls.commands(workspace, [['XREVRANGE', stream, `${after}-0`, '-', 'COUNT', 1]]);
      const [first] = eventsOf(before);
      from = `${first?.seq ?? after}-0`;
    }
    while (events.length < limit) {
      const range = isDown ? (['XREVRANGE', stream, from, '-'] as const) : (['XRANGE', stream, from, '+'] as const);
      const [entries] = await calls.commands(workspace, [[...range, 'COUNT', STEPS]]);
      const read = eventsOf(entries);
      const firsts = Array.isArray(entries) ? entries.map((entry: unknown) => entryOf(entry).first) : [];
      const sorted = read.toSorted((one, other) => (isDown ? other.seq - one.seq : one.seq - other.seq));
      events.push(...sorted.filter(({ seq }) => isBeyond(seq)));
      if (firsts.length < STEPS) break;
      from = `(${firsts.at(-1) ?? 0}-0`;
    }
    return events.slice(0, limit);
  };
}

function entryOf(entry: unknown): { readonly first: number; readonly fields: readonly string[] } {
  if (!Array.isArray(entry)) throw new TypeError('an entry of the ledger has another form');
  const [id, fields] = entry;
  return { first: Number(String(id).split('-')[0]), fields: textsOf(fields) };
}

function eventsOf(entries: unknown): readonly LedgerEntry[] {
  if (!Array.isArray(entries)) throw new TypeError('a range of the ledger has another form');
  return entries.flatMap((entry: unknown) => {
    const { first, fields } = entryOf(entry);
    const [at, epoch, ...rest] = fields;
    const events: LedgerEntry[] = [];
    let name = '';
    for (let i = 0; i + 1 < rest.length; i += 2) {
      if (rest[i] !== SAME_ABOUT) name = rest[i] ?? '';
      events.push({
        seq: first + i / 2,
        epoch: Number(epoch),
        at: Number(at),
        about: namedAbout(name),
        text: unstored(rest[i + 1] ?? ''),
      });
    }
    return events;
  });
}
