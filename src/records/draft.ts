import {
  ABSENT,
  type Change,
  type EventDraft,
  type Counter,
  type Found,
  type Guard,
  type Place,
  type Put,
  type ReadRow,
  type SumChange,
  type SumName,
  type Want,
  type LocalRows,
} from '../stores/port.ts';

/** Options of a look at a row. */
export interface ReadHint {
  /** Take the row to be absent if nothing is known of it. The guess is guarded and mostly right. */
  readonly assumeAbsent?: boolean;
  /** Kind of the row that this row's text names. If there is such a row, it is read as well. */
  readonly follow?: string;
}

/** For rows that are mostly absent: a wrong guess costs no more than a read. */
export const MOSTLY_ABSENT: ReadHint = { assumeAbsent: true };

/**
 * What one step looks at and what it writes. Its later looks see what it wrote. Where the store has one writer these are
 * the store's own rows (`LocalRows`); elsewhere the rows that a step looked at become the guards of its change.
 */
export interface Draft
  extends Pick<LocalRows, 'workspace' | 'now' | 'epoch' | 'replaced' | 'put' | 'counterAsStored' | 'reset' | 'events'> {
  row(kind: string, id: string, hint?: ReadHint): ReadRow | null;
  /** The counter, where it is known. `null`: the store will judge. */
  counter(name: SumName): Counter | null;
  sum(change: SumChange): void;
  /** The place of the next event, where it is known; else 0, and the store adds the place of the first. */
  nextSeq(): number;
  /** The step's decision no longer holds from this time on, ms. */
  validUntil(at: number): void;
}

/** Thrown when a step looks at something that is not known. The runner reads it and runs the step again. */
export class Unknown {
  readonly wants: readonly Want[];
  readonly sums: readonly SumName[];

  constructor(wants: readonly Want[], sums: readonly SumName[]) {
    this.wants = wants;
    this.sums = sums;
  }
}

export interface Ground {
  readonly workspace: string;
  readonly now: number;
  readonly epoch: number;
  /** `undefined`: not known; `null`: known to be absent. */
  row(kind: string, id: string): ReadRow | null | undefined;
  counter(name: SumName): Counter | undefined;
}

/** How far the store's time may be from the time at which a step ran, ms. A step that waited longer is run again. */
const SPAN_MS = 2000;

interface Entry {
  readonly kind: string;
  readonly id: string;
  readonly follow: string | undefined;
  /** As the first look found it. */
  readonly found: ReadRow | null;
  /** As the draft will leave it. A written row gets its version when the draft becomes a change. */
  row: ReadRow | null;
  written: Written | null;
}

interface Written {
  readonly before: readonly Place[];
  row: (ReadRow & { version: string }) | null;
  places: readonly Place[];
}

/** Up to this many rows are searched one by one: most steps look at five. */
const FEW = 32;

const NOWHERE: readonly Place[] = [];
const AS_IT_IS: ReadHint = {};

export interface OpenDraft extends Draft {
  /**
   * The change that the step wants, with the rows that it writes; `null` if there is nothing to write and nothing to
   * confirm.
   */
  change(id: string): { readonly change: Change; readonly written: readonly Found[] } | null;
  observed(): { readonly rows: readonly Guard[]; readonly sums: readonly SumName[] };
}

export function createDraft(ground: Ground): OpenDraft {
  const { workspace, now, epoch } = ground;
  const entries: Entry[] = [];
  let byName: Map<string, Entry> | null = null;
  const written: Entry[] = [];
  const counters = new Map<string, SumName>();
  const sums = new Map<string, SumChange>();
  const resets: string[] = [];
  const events: EventDraft[] = [];
  let until = now + SPAN_MS;

  function entryOf(kind: string, id: string): Entry | undefined {
    if (byName !== null) return byName.get(`${kind}\n${id}`);
    for (const entry of entries) if (entry.id === id && entry.kind === kind) return entry;
    return undefined;
  }

  function add(entry: Entry): Entry {
    entries.push(entry);
    if (byName !== null) byName.set(`${entry.kind}\n${entry.id}`, entry);
    else if (entries.length > FEW) byName = new Map(entries.map((each) => [`${each.kind}\n${each.id}`, each]));
    return entry;
  }

  function readRow(kind: string, id: string, { assumeAbsent, follow }: ReadHint): Entry {
    const there = entryOf(kind, id);
    if (there !== undefined) return there;
    const found = ground.row(kind, id);
    if (found === undefined && assumeAbsent !== true)
      throw new Unknown([follow === undefined ? { kind, id } : { kind, id, follow }], []);
    return add({ kind, id, follow, found: found ?? null, row: found ?? null, written: null });
  }

  /** A row that came and went within the step is not written, but the guard still says that it was absent. */
  function isPut({ written: is, found }: Entry): boolean {
    return is !== null && (is.row !== null || found !== null);
  }

  function guards(all: boolean): readonly Guard[] {
    const guarded: Guard[] = [];
    for (const entry of entries) {
      if (!all && isPut(entry)) continue;
      const { kind, id, follow, found } = entry;
      const version = found?.version ?? ABSENT;
      guarded.push(follow === undefined ? { kind, id, version } : { kind, id, version, follow });
    }
    return guarded;
  }

  function puts(changeId: string, rows: Found[]): readonly Put[] {
    const all: Put[] = [];
    for (const entry of written) {
      const { kind, id, follow, found, written: is } = entry;
      if (is === null || !isPut(entry)) continue;
      const { row, places, before } = is;
      if (row !== null) row.version = changeId;
      rows.push({ kind, id, row });
      const version = found?.version ?? ABSENT;
      const text = row?.text ?? null;
      const enter = without(places, before);
      const leave = without(before, places);
      all.push(
        follow === undefined
          ? { kind, id, version, text, enter, leave }
          : { kind, id, version, text, enter, leave, follow },
      );
    }
    return all;
  }

  return {
    workspace,
    now,
    epoch,
    row: (kind, id, hint = AS_IT_IS) => readRow(kind, id, hint).row,
    replaced: (kind, id) => entryOf(kind, id)?.found ?? null,
    put(kind, id, text, places, before) {
      const entry = entryOf(kind, id) ?? add({ kind, id, follow: undefined, found: null, row: null, written: null });
      const row = text === null ? null : { version: entry.found?.version ?? ABSENT, text };
      const of = text === null ? NOWHERE : places;
      if (entry.written === null) {
        entry.written = { before, row, places: of };
        written.push(entry);
      } else {
        entry.written.row = row;
        entry.written.places = of;
      }
      entry.row = row;
      return row;
    },
    counter(name) {
      counters.set(name.name, name);
      return ground.counter(name) ?? null;
    },
    counterAsStored(name) {
      const known = ground.counter(name);
      if (known === undefined) throw new Unknown([], [name]);
      return known;
    },
    sum(change) {
      const there = sums.get(change.name);
      sums.set(change.name, there === undefined ? change : bothSums(there, change));
    },
    reset: (group) => void resets.push(group),
    nextSeq: () => 0,
    events: (more) => void events.push(...more),
    validUntil(at) {
      until = Math.min(until, at);
    },
    change(id) {
      const guarded = guards(false);
      const rows: Found[] = [];
      const change: Change = {
        id,
        workspace,
        epoch,
        at: now,
        from: now - SPAN_MS,
        until,
        guards: guarded,
        puts: puts(id, rows),
        sums: [...sums.values()],
        resets,
        events,
      };
      const isEmpty = change.puts.length + sums.size + resets.length + events.length + guarded.length === 0;
      return isEmpty ? null : { change, written: rows };
    },
    observed: () => ({ rows: guards(true), sums: [...counters.values()] }),
  };
}

/** The places that are not in the other list. */
function without(places: readonly Place[], others: readonly Place[]): readonly Place[] {
  if (places.length === 0 || others.length === 0) return places;
  return places.filter((place) => !others.some((other) => samePlace(place, other)));
}

function samePlace(one: Place, other: Place): boolean {
  return one.list === other.list && one.at === other.at;
}

function bothSums(one: SumChange, other: SumChange): SumChange {
  return {
    ...other,
    hold: one.hold + other.hold,
    spend: one.spend + other.spend,
    limit: lesser(one.limit, other.limit),
    most: lesser(one.most, other.most),
    text: other.text ?? one.text,
  };
}

function lesser(one: number | null, other: number | null): number | null {
  return one === null || other === null ? (one ?? other) : Math.min(one, other);
}
