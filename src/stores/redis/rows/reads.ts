import type { Answer, Listed, ListQuery, RowStore, Seen, SumListed, SumName, Want, LedgerEntry } from '../../port.ts';
import type { Calls } from '../calls.ts';
import { fieldsOf, textsOf } from '../connection.ts';
import { keyOf } from '../names.ts';
import type { Topology } from '../topology.ts';
import type { Batches } from './batches.ts';
import { kindName, namedCounter, stored, unstored, aboutName, namedAbout, SAME_ABOUT } from './names.ts';
import { answerOf, packedChanges, readChange, rowOf, spanOf } from './words.ts';

/** Counters that are read at once, about. */
const COUNTERS_AT_ONCE = 100;

/** The most entries of a list that are read at once. */
const ENTRIES_AT_ONCE = 1000;

/** Rows of one answer: the largest is 1.5 MB. */
const ROWS_AT_ONCE = 8;

/** The groups whose counters are still to be listed, and the place of the scan in the first of them. */
export interface SumsPlace {
  readonly groups: readonly string[];
  readonly place: string;
}

/** Some counters, and where the next ones are; `null`: there are no more. */
export interface SumsPage {
  readonly sums: readonly SumListed[];
  readonly next: SumsPlace | null;
}

/** Reads a page of counters; `null`: the first one. */
export type PageOfSums = (workspace: string, from: SumsPlace | null) => Promise<SumsPage>;

/** All counters, at most `limit`, page by page. */
export async function listedSums(page: PageOfSums, workspace: string, limit: number): Promise<readonly SumListed[]> {
  // While others are added, a counter may come twice.
  const listed = new Map<string, SumListed>();
  let from: SumsPlace | null = null;
  do {
    const { sums, next }: SumsPage = await page(workspace, from);
    for (const sum of sums) listed.set(sum.name, sum);
    if (listed.size >= limit) return [...listed.values()].slice(0, limit);
    from = next;
  } while (from !== null);
  return [...listed.values()];
}

/**
 * Reads of the store. Rows and counters on which rules decide are as durable as this gateway's own writes. People are
 * shown what is there, even while nothing is confirmed.
 */
export function createReads(parts: {
  readonly calls: Calls;
  readonly topology: Topology;
  /** For reads: those of one turn of the event loop go together, as changes do. */
  readonly readBatches: Batches;
}): Pick<RowStore, 'read' | 'rows' | 'list' | 'ledger'> & { readonly sumsPage: PageOfSums } {
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
    sumsPage: createSumsPage(calls, shown),
    ledger: createLedgerPages(calls),
  };
}

/**
 * Lists counters, group by group.
 * @param shown reads counters as they are
 */
function createSumsPage(
  calls: Calls,
  shown: (workspace: string, wants: readonly Want[], sums: readonly SumName[]) => Promise<Seen>,
): PageOfSums {
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

  return async (workspace, from) => {
    const groups =
      from?.groups ?? textsOf((await calls.commands(workspace, [['SMEMBERS', keyOf(workspace, 'groups')]]))[0]);
    const [group, ...others] = groups;
    if (group === undefined) return { sums: [], next: null };
    const [sums, place] = await scanned(workspace, group, from?.place ?? '0');
    if (place !== '0') return { sums, next: { groups, place } };
    return { sums, next: others.length === 0 ? null : { groups: others, place } };
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

/** How many steps are read at once; each has the events of its changes. */
const STEPS = 20;

/**
 * The ledger is a stream with one entry per step. Its id is the place of the step's first event; time and epoch come
 * before the events. An event that is about the same as the one before it in the entry says only that.
 */
function createLedgerPages(calls: Calls): RowStore['ledger'] {
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
