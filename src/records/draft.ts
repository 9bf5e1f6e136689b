import {
  ABSENT,
  type Change,
  type EventDraft,
  type Figure,
  type Found,
  type Guard,
  type Place,
  type Put,
  type Row,
  type SumChange,
  type SumName,
  type Want,
} from '../stores/port.ts';

/** How a row is looked at. */
export interface Look {
  /** It is taken to be absent where nothing is known of it: the guess is guarded, and mostly right. */
  readonly assumeAbsent?: boolean;
  /** Kind of the row that this row's text names, which is needed too where there is one. */
  readonly follow?: string;
}

/** A look at what is mostly absent: to guess wrong costs what to read would. */
export const MOSTLY_ABSENT: Look = { assumeAbsent: true };

/**
 * What one step looks at, and what it writes. What it looked at becomes the guards of its change; what it writes is seen
 * by its own later looks.
 */
export interface Draft {
  readonly workspace: string;
  /** The store's time, ms. */
  readonly now: number;
  readonly epoch: number;
  row(kind: string, id: string, look?: Look): Row | null;
  /** Writes a row, in place of the one that was looked at; one that was not looked at is new. */
  put(kind: string, id: string, text: string | null, places: readonly Place[], before: readonly Place[]): void;
  /** A figure as it stands, where it is known; `null`: the store will judge. */
  figure(name: SumName): Figure | null;
  sum(change: SumChange): void;
  reset(group: string): void;
  event(event: EventDraft): void;
  /** What was decided does not hold from then on, ms. */
  validUntil(at: number): void;
}

/** Thrown by a look at what is not known; whoever runs the step reads it, and runs the step again. */
export class Unknown {
  readonly want: Want;

  constructor(want: Want) {
    this.want = want;
  }
}

/** What a draft is made on. */
export interface Ground {
  readonly workspace: string;
  readonly now: number;
  readonly epoch: number;
  /** `undefined`: not known; `null`: known to be absent. */
  row(kind: string, id: string): Row | null | undefined;
  figure(name: string): Figure | undefined;
}

/** How far the store's time may be from the one that a step was run at, ms: steps that waited longer are run again. */
const SPAN_MS = 2000;

interface Looked {
  readonly kind: string;
  readonly id: string;
  readonly version: string;
  readonly follow: string | undefined;
  /** As the draft will leave it; what it writes has its version when it becomes a change. */
  row: { version: string; readonly text: string } | null;
}

interface Written {
  readonly before: readonly Place[];
  text: string | null;
  places: readonly Place[];
}

export interface OpenDraft extends Draft {
  /** The change that makes it so, with the rows that it writes; `null` where there is nothing to write and nothing to confirm. */
  change(id: string): { readonly change: Change; readonly written: readonly Found[] } | null;
  /** What it has looked at. */
  looked(): { readonly rows: readonly Guard[]; readonly sums: readonly SumName[] };
}

export function createDraft(ground: Ground): OpenDraft {
  const { workspace, now, epoch } = ground;
  const looked = new Map<string, Looked>();
  const written = new Map<string, Written>();
  const figures = new Map<string, SumName>();
  const sums = new Map<string, SumChange>();
  const resets: string[] = [];
  const events: EventDraft[] = [];
  let until = now + SPAN_MS;

  function lookAt(kind: string, id: string, look: Look): Looked {
    const name = `${kind}\n${id}`;
    const there = looked.get(name);
    if (there !== undefined) return there;
    let row = ground.row(kind, id);
    if (row === undefined) {
      if (look.assumeAbsent !== true)
        throw new Unknown({ kind, id, ...(look.follow === undefined ? {} : { follow: look.follow }) });
      row = null;
    }
    const entry: Looked = { kind, id, version: row?.version ?? ABSENT, follow: look.follow, row };
    looked.set(name, entry);
    return entry;
  }

  /** What came and went within the step is not put; that it was absent is guarded all the same. */
  function isPut(name: string): boolean {
    const is = written.get(name);
    return is !== undefined && (is.text !== null || looked.get(name)?.version !== ABSENT);
  }

  function guards(all: boolean): readonly Guard[] {
    const found: Guard[] = [];
    for (const [name, { kind, id, version, follow }] of looked)
      if (all || !isPut(name)) found.push(follow === undefined ? { kind, id, version } : { kind, id, version, follow });
    return found;
  }

  function puts(changeId: string, rows: Found[]): readonly Put[] {
    const found: Put[] = [];
    for (const [name, { text, places, before }] of written) {
      const entry = looked.get(name);
      if (entry === undefined) throw new TypeError('a row is written that was not looked at');
      const { kind, id, version, follow } = entry;
      if (!isPut(name)) continue;
      if (entry.row !== null) entry.row.version = changeId;
      rows.push({ kind, id, row: entry.row });
      found.push({
        kind,
        id,
        version,
        text,
        enter: places.filter((place) => !before.some((other) => samePlace(place, other))),
        leave: before.filter((place) => !places.some((other) => samePlace(place, other))),
        ...(follow === undefined ? {} : { follow }),
      });
    }
    return found;
  }

  return {
    workspace,
    now,
    epoch,
    row: (kind, id, look = {}) => lookAt(kind, id, look).row,
    put(kind, id, text, places, before) {
      const name = `${kind}\n${id}`;
      const entry = looked.get(name) ?? { kind, id, version: ABSENT, follow: undefined, row: null };
      entry.row = text === null ? null : { version: entry.version, text };
      looked.set(name, entry);
      const earlier = written.get(name);
      if (earlier === undefined) written.set(name, { before, text, places: text === null ? [] : places });
      else {
        earlier.text = text;
        earlier.places = text === null ? [] : places;
      }
    },
    figure(name) {
      figures.set(name.name, name);
      return ground.figure(name.name) ?? null;
    },
    sum(change) {
      const there = sums.get(change.name);
      sums.set(change.name, there === undefined ? change : bothSums(there, change));
    },
    reset: (group) => void resets.push(group),
    event: (event) => void events.push(event),
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
    looked: () => ({ rows: guards(true), sums: [...figures.values()] }),
  };
}

function samePlace(one: Place, other: Place): boolean {
  return one.list === other.list && one.at === other.at;
}

/** Two changes of one figure, as one. */
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
