import type { OpenRows } from '../../src/stores/open-rows.ts';
import {
  ABSENT,
  type Answer,
  type Change,
  type Counter,
  type Found,
  type LedgerEntry,
  type Place,
  type Row,
  type RowStore,
  type SumName,
  type Want,
  type Watched,
} from '../../src/stores/port.ts';

interface MapFigure {
  readonly name: SumName;
  text: string;
  held: number;
  /** Amounts by the end of their slot (rolling), or all at 0. */
  readonly spent: Map<number, number>;
}

interface Space {
  readonly rows: Map<string, Row & { readonly id: string; readonly kind: string }>;
  readonly lists: Map<string, Map<string, number>>;
  readonly counters: Map<string, MapFigure>;
  readonly ledger: LedgerEntry[];
}

/** All that a store of rows keeps, in memory: the reference that stores are compared with, and a simulator's store. */
export interface MapRows {
  readonly spaces: Map<string, Space>;
  epoch: number;
}

export function emptyRows(): MapRows {
  return { spaces: new Map(), epoch: 1 };
}

/** What an opener of a store adds, where nothing has ended and nothing stands in the way. */
export const ALONE = {
  installId: 'map',
  health: () => ({ ready: true, problem: null, durability: 'none', epoch: 1 }),
  impediment: () => null,
  ended: { owner: null, known: async () => {}, any: () => false, quietAt: () => null, none: () => {} },
} as const satisfies Omit<OpenRows, keyof RowStore>;

function spaceOf(rows: MapRows, workspace: string): Space {
  let space = rows.spaces.get(workspace);
  if (space === undefined) {
    space = { rows: new Map(), lists: new Map(), counters: new Map(), ledger: [] };
    rows.spaces.set(workspace, space);
  }
  return space;
}

/** Rows of one answer to people, as of the store on Redis. */
const MOST_ROWS = 8;

const nameOf = ({ kind, id }: { readonly kind: string; readonly id: string }): string => `${kind}\n${id}`;

function spentOf({ name: { span }, spent }: MapFigure, now: number): number {
  if (span.kind === 'until') return span.end > now ? (spent.get(0) ?? 0) : 0;
  let sum = 0;
  for (const [end, amount] of spent) if (end > now - span.ms) sum += amount;
  return sum;
}

function counts(counter: MapFigure, now: number): boolean {
  const { span } = counter.name;
  return counter.held > 0 || (span.kind === 'until' ? span.end > now : spentOf(counter, now) > 0);
}

function counterOf(space: Space, { name, group }: SumName, now: number): Counter {
  const counter = space.counters.get(name);
  let rows = 0;
  for (const other of space.counters.values()) if (other.name.group === group && counts(other, now)) rows += 1;
  return { spent: counter === undefined ? 0 : spentOf(counter, now), held: counter?.held ?? 0, rows };
}

function found(space: Space, want: Want): readonly Found[] {
  const { kind, id, follow } = want;
  const there = space.rows.get(nameOf(want));
  const row: Row | null = there === undefined ? null : { version: there.version, text: there.text };
  const one: Found = { kind, id, row };
  return follow === undefined || row === null ? [one] : [one, ...found(space, { kind: follow, id: row.text })];
}

function enter(space: Space, id: string, { list, at }: Place): void {
  const places = space.lists.get(list) ?? new Map<string, number>();
  places.set(id, at);
  space.lists.set(list, places);
}

/** Commits a change. @returns what the store answers */
export function commitTo(rows: MapRows, change: Change, now: number): Answer {
  const space = spaceOf(rows, change.workspace);
  const looked = [...change.guards, ...change.puts];
  const moved = looked.filter((it) => (space.rows.get(nameOf(it))?.version ?? ABSENT) !== it.version);
  const fresh = change.sums.every((sum) => {
    const before = counterOf(space, sum, now);
    const counter = space.counters.get(sum.name);
    const isNew = counter === undefined || !counts(counter, now);
    return (
      (sum.limit === null || before.spent + before.held + sum.hold + sum.spend <= sum.limit) &&
      (sum.most === null || !isNew || before.rows < sum.most)
    );
  });
  if (change.epoch !== rows.epoch || now < change.from || now >= change.until || moved.length > 0 || !fresh) {
    return {
      kind: 'moved',
      now,
      epoch: rows.epoch,
      rows: moved.flatMap((want) => found(space, want)),
      counters: change.sums.map((sum) => counterOf(space, sum, now)),
    };
  }
  for (const { kind, id, text, enter: entered, leave } of change.puts) {
    for (const { list } of leave) space.lists.get(list)?.delete(id);
    for (const place of entered) enter(space, id, place);
    if (text === null) space.rows.delete(nameOf({ kind, id }));
    else space.rows.set(nameOf({ kind, id }), { kind, id, version: change.id, text });
  }
  for (const group of change.resets)
    for (const [name, counter] of space.counters) {
      if (counter.name.group !== group) continue;
      counter.spent.clear();
      if (counter.held === 0) space.counters.delete(name);
    }
  for (const { name, span, group, hold, spend, text } of change.sums) {
    const counter = space.counters.get(name) ?? { name: { name, span, group }, text: '', held: 0, spent: new Map() };
    space.counters.set(name, counter);
    counter.held = Math.max(0, counter.held + hold);
    const width = span.kind === 'rolling' ? Math.max(1, Math.ceil(span.ms / 1000)) : 0;
    const slot = span.kind === 'rolling' ? (Math.floor(now / width) + 1) * width : 0;
    if (spend !== 0) counter.spent.set(slot, (counter.spent.get(slot) ?? 0) + spend);
    if (text !== null) counter.text = text;
  }
  const seq = space.ledger.length + 1;
  for (const event of change.events)
    space.ledger.push({ ...event, epoch: rows.epoch, seq: space.ledger.length + 1, at: now });
  return {
    kind: 'done',
    now,
    epoch: rows.epoch,
    seq,
    counters: change.sums.map((sum) => counterOf(space, sum, now)),
  };
}

/** A store over rows in memory. */
export function mapStore(rows: MapRows, clock: () => number): RowStore {
  const watchers: { readonly kinds: readonly string[]; readonly listener: (changed: Watched) => void }[] = [];
  return {
    async read(workspace, wants, sums) {
      const space = spaceOf(rows, workspace);
      const now = clock();
      return {
        now,
        epoch: rows.epoch,
        rows: wants.flatMap((want) => found(space, want)),
        counters: sums.map((sum) => counterOf(space, sum, now)),
      };
    },
    async commit(change) {
      const answer = commitTo(rows, change, clock());
      if (answer.kind === 'done')
        for (const { kinds, listener } of watchers)
          for (const { kind, id } of change.puts)
            if (kinds.includes(kind)) listener({ workspace: change.workspace, kind, id });
      return answer;
    },
    async rows(workspace, names) {
      const space = spaceOf(rows, workspace);
      // As short as any store may answer.
      return names.slice(0, MOST_ROWS).map((name) => {
        const row = space.rows.get(nameOf(name));
        return row === undefined ? null : { version: row.version, text: row.text };
      });
    },
    async list({ workspace, list, kind, order, from, to, after, limit, characters }) {
      const space = spaceOf(rows, workspace);
      const places = [...(space.lists.get(list) ?? [])].map(([id, at]) => ({ id, at }));
      const compare = (one: { at: number; id: string }, other: { at: number; id: string }): number =>
        one.at - other.at || (one.id < other.id ? -1 : one.id > other.id ? 1 : 0);
      const sign = order === 'up' ? 1 : -1;
      const wanted = places
        .filter(({ at }) => (from === null || at >= from) && (to === null || at <= to))
        .toSorted((one, other) => sign * compare(one, other))
        .filter((place) => after === null || sign * compare(place, after) > 0);
      const entries: { at: number; id: string; row: Row }[] = [];
      let size = 0;
      for (const { at, id } of wanted) {
        const row = space.rows.get(nameOf({ kind, id }));
        if (row === undefined) continue;
        size += row.text.length;
        if (entries.length === limit || (entries.length > 0 && size > characters)) return { entries, more: true };
        entries.push({ at, id, row: { version: row.version, text: row.text } });
      }
      return { entries, more: false };
    },
    async sums(workspace, limit) {
      const space = spaceOf(rows, workspace);
      const now = clock();
      return [...space.counters.values()]
        .filter((counter) => counts(counter, now))
        .slice(0, limit)
        .map(({ name, text }) => ({ name: name.name, group: name.group, text, ...counterOf(space, name, now) }));
    },
    async ledger({ workspace, about, order, after, limit }) {
      const { ledger } = spaceOf(rows, workspace);
      const sorted = order === 'up' ? ledger : ledger.toReversed();
      return sorted
        .filter((entry) => after === null || (order === 'up' ? entry.seq > after : entry.seq < after))
        .filter((entry) => about === null || entry.about === about)
        .slice(0, limit);
    },
    watch: (kinds, listener) => void watchers.push({ kinds, listener }),
    async prune(workspace, limit) {
      const { counters } = spaceOf(rows, workspace);
      const over = [...counters].filter(([, counter]) => !counts(counter, clock())).slice(0, limit);
      for (const [name] of over) counters.delete(name);
      return over.length;
    },
    now: clock,
    async close() {},
  };
}
