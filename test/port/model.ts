import {
  ABSENT,
  type Answer,
  type Change,
  type Counter,
  type Found,
  type LedgerEntry,
  type Listed,
  type ListQuery,
  type Row,
  type Seen,
  type SumChange,
  type SumName,
  type Want,
} from '../../src/stores/port.ts';

const SLOTS = 1_000;

interface ModelFigure {
  readonly sum: SumName;
  held: number;
  /** What was spent, by the time until which it counts. */
  spends: { readonly until: number; readonly amount: number }[];
  text: string;
}

interface ModelPlace {
  readonly list: string;
  readonly at: number;
  readonly kind: string;
  readonly id: string;
}

/** What the port says a workspace does, in the plainest words: nothing is kept twice, all is computed from all. */
export interface Model {
  commit(change: Change, now: number): Answer;
  read(wants: readonly Want[], sums: readonly SumName[], now: number): Seen;
  list(query: ListQuery): Listed;
  ledger(about: string | null): readonly LedgerEntry[];
  sums(now: number): readonly string[];
  prune(now: number): number;
}

/** A workspace of its own, empty. */
export function emptyModel(epoch: number): Model {
  const rows = new Map<string, Row>();
  let places: ModelPlace[] = [];
  let counters = new Map<string, ModelFigure>();
  const events: LedgerEntry[] = [];
  const nameOf = (kind: string, id: string): string => JSON.stringify([kind, id]);

  function show({ kind, id, follow }: Want): readonly Found[] {
    const row = rows.get(nameOf(kind, id)) ?? null;
    const named = follow === undefined || row === null ? undefined : rows.get(nameOf(follow, row.text));
    return follow === undefined || row === null || named === undefined
      ? [{ kind, id, row }]
      : [
          { kind, id, row },
          { kind: follow, id: row.text, row: named },
        ];
  }

  const spentOf = (counter: ModelFigure, now: number): number =>
    counter.spends.reduce((total, { until, amount }) => (until > now ? total + amount : total), 0);

  function counts(counter: ModelFigure, now: number): boolean {
    const { span } = counter.sum;
    return (
      counter.held > 0 || (span.kind === 'until' ? span.end > now : counter.spends.some(({ until }) => until > now))
    );
  }

  function rowsOf(of: ReadonlyMap<string, ModelFigure>, group: string, now: number): number {
    return [...of.values()].filter((counter) => counter.sum.group === group && counts(counter, now)).length;
  }

  function counterOf({ name, group }: SumName, now: number): Counter {
    const counter = counters.get(name);
    const count = rowsOf(counters, group, now);
    return counter === undefined
      ? { spent: 0, held: 0, rows: count }
      : { spent: spentOf(counter, now), held: counter.held, rows: count };
  }

  function begunAnew(resets: readonly string[]): Map<string, ModelFigure> {
    const anew = new Map<string, ModelFigure>();
    for (const [name, counter] of counters) {
      const isReset = resets.includes(counter.sum.group);
      if (!isReset) anew.set(name, { ...counter, spends: [...counter.spends] });
      else if (counter.held > 0) anew.set(name, { ...counter, spends: [] });
    }
    return anew;
  }

  /** Makes a sum; says whether its limits allow it. */
  function make(of: Map<string, ModelFigure>, sum: SumChange, now: number): boolean {
    const { name, span, group, hold, spend, limit, most, text } = sum;
    const there = of.get(name);
    const before = rowsOf(of, group, now);
    const counter = there ?? { sum: { name, span, group }, held: 0, spends: [], text: '' };
    const total = spentOf(counter, now) + counter.held + hold + spend;
    of.set(name, counter);
    counter.held = Math.max(0, counter.held + hold);
    const width = span.kind === 'rolling' ? Math.ceil(span.ms / SLOTS) : 1;
    const until = span.kind === 'until' ? Infinity : (Math.floor(now / width) + 1) * width + span.ms;
    if (spend > 0) counter.spends.push({ until, amount: spend });
    if (text !== null) counter.text = text;
    const after = rowsOf(of, group, now);
    return (limit === null || total <= limit) && (most === null || after <= before || after <= most);
  }

  return {
    commit(change, now) {
      const wanted = [...change.guards, ...change.puts];
      const wrong = wanted.filter(
        ({ kind, id, version }) => (rows.get(nameOf(kind, id))?.version ?? ABSENT) !== version,
      );
      const isTime = change.epoch === epoch && change.from <= now && now < change.until;
      const anew = begunAnew(change.resets);
      const isAllowed = change.sums.every((sum) => make(anew, sum, now));
      if (wrong.length > 0 || !isTime || !isAllowed) {
        const sums = change.sums.map((sum) => counterOf(sum, now));
        return { kind: 'moved', now, epoch, rows: wrong.flatMap(show), counters: sums };
      }
      counters = anew;
      for (const { kind, id, text, enter, leave } of change.puts) {
        if (text === null) rows.delete(nameOf(kind, id));
        else rows.set(nameOf(kind, id), { version: change.id, text });
        const isIn = (of: readonly { list: string; at: number }[], list: string, at: number): boolean =>
          of.some((place) => place.list === list && place.at === at);
        const goes = (place: ModelPlace): boolean =>
          place.kind === kind &&
          place.id === id &&
          isIn(leave, place.list, place.at) &&
          !isIn(enter, place.list, place.at);
        places = places.filter((place) => !goes(place));
        for (const { list, at } of enter) if (!isIn(leave, list, at)) places.push({ list, at, kind, id });
      }
      const seq = events.length + 1;
      for (const { about, text } of change.events) events.push({ epoch, seq: events.length + 1, at: now, about, text });
      return { kind: 'done', now, epoch, seq, counters: change.sums.map((sum) => counterOf(sum, now)) };
    },
    read: (wants, sums, now) => ({
      now,
      epoch,
      rows: wants.flatMap(show),
      counters: sums.map((sum) => counterOf(sum, now)),
    }),
    list({ list, kind, order, from, to, after, limit }) {
      const compare = (a: { at: number; id: string }, b: { at: number; id: string }): number =>
        (order === 'up' ? 1 : -1) * (a.at - b.at || (a.id < b.id ? -1 : Number(a.id > b.id)));
      const all = places
        .filter((place) => place.list === list && place.kind === kind)
        .filter(({ at }) => at >= (from ?? 0) && at <= (to ?? Infinity))
        .filter((place) => after === null || compare(place, after) > 0)
        .toSorted(compare);
      const entries = all.slice(0, limit).flatMap(({ at, id }) => {
        const row = rows.get(nameOf(kind, id));
        return row === undefined ? [] : [{ at, id, row }];
      });
      return { entries, more: all.length > limit };
    },
    ledger: (about) => events.filter((event) => about === null || event.about === about),
    sums: (now) =>
      [...counters.values()]
        .filter((counter) => counts(counter, now))
        .map((counter) => `${counter.sum.name} ${spentOf(counter, now)} ${counter.held} ${counter.text}`),
    prune(now) {
      const over = [...counters].filter(([, counter]) => !counts(counter, now));
      for (const [name] of over) counters.delete(name);
      return over.length;
    },
  };
}
