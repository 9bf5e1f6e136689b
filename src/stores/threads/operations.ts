import type {
  Answer,
  Change,
  EventDraft,
  Counter,
  Found,
  Listed,
  ListQuery,
  Place,
  Seen,
  Guard,
  LedgerEntry,
  LedgerQuery,
  Put,
  Row,
  Span,
  SumChange,
  SumListed,
  SumName,
  Want,
} from '../port.ts';
import type { ReadOperation } from '../open-rows.ts';
import { ownText } from '../embedded/tables/columns.ts';
import type { RowsQuery } from '../embedded/tables/reader.ts';
import type { InForceDigests } from '../redis/announcements.ts';
import type { SumsPage, SumsPlace } from '../redis/rows/reads.ts';

/** What the store's threads do: what each operation is asked, and its answer. */
interface Operations {
  readonly commit: readonly [Change, Answer];
  readonly read: readonly [
    {
      readonly workspace: string;
      readonly wants: readonly Want[];
      readonly sums: readonly SumName[];
      readonly isShown: boolean;
    },
    Seen,
  ];
  /** Counters by name, after a name. */
  readonly sums: readonly [
    { readonly workspace: string; readonly after: string | null; readonly limit: number },
    readonly SumListed[],
  ];
  readonly prune: readonly [{ readonly workspace: string; readonly limit: number }, number];
  /** A request to the program of the store, and its answer. */
  readonly program: readonly [string, string];
  /** The same for the program in the thread that reads. */
  readonly read_program: readonly [string, string];
  /** Kinds whose changes are told from now on. */
  readonly watch: readonly [readonly string[], null];
  /** Is answered when everything that is committed by now is durable. */
  readonly settled: readonly [null, null];
  readonly rows: readonly [RowsQuery, readonly (Row | null)[]];
  readonly list: readonly [ListQuery, Listed];
  readonly ledger: readonly [LedgerQuery, readonly LedgerEntry[]];
  /** Counters on Redis, from a place on. */
  readonly sums_page: readonly [{ readonly workspace: string; readonly from: SumsPlace | null }, SumsPage];
  /** Is answered when it is known which boots of other gateways have ended in a workspace. */
  readonly ended_known: readonly [string, null];
  /** Tells the other gateways what is in force here. */
  readonly announce: readonly [InForceDigests, null];
}

export type Operation = keyof Operations;

/** What a connection does that only reads, for people. The one that writes does everything else. */
export type Reading = ReadOperation | 'read_program';
export type OnRedis =
  | ReadOperation
  | 'commit'
  | 'read'
  | 'prune'
  | 'program'
  | 'watch'
  | 'sums_page'
  | 'ended_known'
  | 'announce';
export type Writing = 'commit' | 'read' | 'sums' | 'prune' | 'program' | 'watch' | 'settled';

export type Asked<Op extends Operation> = Operations[Op][0];
export type AnswerTo<Op extends Operation> = Operations[Op][1];

/** Asks for an operation, in this thread or in another one. */
export type Ask<Of extends Operation> = <Op extends Of>(op: Op, asked: Asked<Op>) => Promise<AnswerTo<Op>>;

/** Those who do the operations. Each calls exactly one of `done` and `failed`. */
export type Handlers<Of extends Operation> = {
  readonly [Op in Of]: (asked: Asked<Op>, done: (answer: AnswerTo<Op>) => void, failed: (error: Error) => void) => void;
};

/** Requests an operation, in this thread or in another one: exactly one of `done` and `failed` is called. */
export type Send<Of extends Operation> = <Op extends Of>(
  op: Op,
  asked: Asked<Op>,
  done: (answer: AnswerTo<Op>) => void,
  failed: (error: Error) => void,
) => void;

/** Asks in this thread. */
export function asking<Of extends Operation>(handlers: Handlers<Of>): Ask<Of> {
  return (op, asked) => new Promise((resolve, reject) => handlers[op](asked, resolve, reject));
}

// JavaScript evaluates members in the order of the literal, so each literal is also the order of the message. (Spreads
// are left out where calls wait: one costs as much as the rest of the object.)

const place: Form<Place> = (codec, it) => ({ list: codec.text(it?.list), at: codec.number(it?.at) });

const want: Form<Want> = (codec, it) => ({
  kind: codec.text(it?.kind),
  id: codec.text(it?.id),
  follow: codec.textOr(it?.follow) ?? undefined,
});

const guard: Form<Guard> = (codec, it) => ({
  kind: codec.text(it?.kind),
  id: codec.text(it?.id),
  follow: codec.textOr(it?.follow) ?? undefined,
  version: codec.text(it?.version),
});

const put: Form<Put> = (codec, it) => ({
  kind: codec.text(it?.kind),
  id: codec.text(it?.id),
  follow: codec.textOr(it?.follow) ?? undefined,
  version: codec.text(it?.version),
  text: codec.textOr(it?.text),
  enter: codec.each(place, it?.enter),
  leave: codec.each(place, it?.leave),
});

const UNTIL = 0;
const ROLLING = 1;

const span: Form<Span> = (codec, it) =>
  codec.number(it?.kind === 'rolling' ? ROLLING : UNTIL) === ROLLING
    ? { kind: 'rolling', ms: codec.number(it?.kind === 'rolling' ? it.ms : undefined) }
    : { kind: 'until', end: codec.number(it?.kind === 'until' ? it.end : undefined) };

const sumName: Form<SumName> = (codec, it) => ({
  name: codec.text(it?.name),
  group: codec.text(it?.group),
  span: span(codec, it?.span),
});

const sumChange: Form<SumChange> = (codec, it) => ({
  name: codec.text(it?.name),
  group: codec.text(it?.group),
  span: span(codec, it?.span),
  hold: codec.number(it?.hold),
  spend: codec.number(it?.spend),
  limit: codec.numberOr(it?.limit),
  most: codec.numberOr(it?.most),
  text: codec.textOr(it?.text),
});

const text: Form<string> = (codec, it) => codec.text(it);

const event: Form<EventDraft> = (codec, it) => ({ about: codec.textOr(it?.about), text: codec.text(it?.text) });

const change: Form<Change> = (codec, it) => ({
  id: codec.text(it?.id),
  workspace: codec.text(it?.workspace),
  epoch: codec.number(it?.epoch),
  at: codec.number(it?.at),
  from: codec.number(it?.from),
  until: codec.number(it?.until),
  guards: codec.each(guard, it?.guards),
  puts: codec.each(put, it?.puts),
  sums: codec.each(sumChange, it?.sums),
  resets: codec.each(text, it?.resets),
  events: codec.each(event, it?.events),
});

const counter: Form<Counter> = (codec, it) => ({
  spent: codec.number(it?.spent),
  held: codec.number(it?.held),
  rows: codec.number(it?.rows),
});

/** The gateway keeps the rows that it gets, so they need texts of their own. */
function found(codec: Codec, it?: Found): Found {
  const kind = codec.keptText(it?.kind);
  const id = codec.keptText(it?.id);
  const version = codec.textOr(it?.row?.version);
  return {
    kind,
    id,
    row: version === null ? null : { version: ownText(version), text: codec.keptText(it?.row?.text) },
  };
}

const seen: Form<Seen> = (codec, it) => ({
  now: codec.number(it?.now),
  epoch: codec.number(it?.epoch),
  rows: codec.each(found, it?.rows),
  counters: codec.each(counter, it?.counters),
});

const DONE = 0;
const MOVED = 1;

function answer(codec: Codec, it?: Answer): Answer {
  if (codec.number(it?.kind === 'moved' ? MOVED : DONE) === MOVED)
    return { kind: 'moved', ...seen(codec, it?.kind === 'moved' ? it : undefined) };
  return {
    kind: 'done',
    now: codec.number(it?.now),
    epoch: codec.number(it?.epoch),
    seq: codec.number(it?.kind === 'done' ? it.seq : undefined),
    counters: codec.each(counter, it?.counters),
  };
}

function shownRow(codec: Codec, it?: Row | null): Row | null {
  const version = codec.textOr(it?.version);
  return version === null ? null : { version, text: codec.text(it?.text) };
}

const listed: Form<Listed> = (codec, it) => ({
  more: codec.number(it?.more === true ? 1 : 0) === 1,
  entries: codec.each(
    (_, entry) => ({
      at: codec.number(entry?.at),
      id: codec.text(entry?.id),
      row: { version: codec.text(entry?.row.version), text: codec.text(entry?.row.text) },
    }),
    it?.entries,
  ),
});

const ledgerEntry: Form<LedgerEntry> = (codec, it) => ({
  epoch: codec.number(it?.epoch),
  seq: codec.number(it?.seq),
  at: codec.number(it?.at),
  about: codec.textOr(it?.about),
  text: codec.text(it?.text),
});

/** The form of what is rare. */
function json<T>(codec: Codec, it?: T): T {
  if (it === undefined) return JSON.parse(codec.text());
  codec.text(JSON.stringify(it));
  return it;
}

/** How each operation crosses from one thread to another. */
export const FORMS: { readonly [Op in Operation]: { asked: Form<Asked<Op>>; answer: Form<AnswerTo<Op>> } } = {
  commit: { asked: change, answer },
  read: {
    asked: (codec, it) => ({
      workspace: codec.text(it?.workspace),
      wants: codec.each(want, it?.wants),
      sums: codec.each(sumName, it?.sums),
      isShown: codec.number(it?.isShown === true ? 1 : 0) === 1,
    }),
    answer: seen,
  },
  rows: {
    asked: json,
    answer: (codec, it) => codec.each((_, row) => shownRow(codec, row), it),
  },
  list: { asked: json, answer: listed },
  ledger: { asked: json, answer: (codec, it) => codec.each(ledgerEntry, it) },
  sums: { asked: json, answer: json },
  prune: { asked: json, answer: json },
  program: { asked: text, answer: text },
  read_program: { asked: text, answer: text },
  watch: { asked: json, answer: json },
  settled: { asked: json, answer: json },
  sums_page: { asked: json, answer: json },
  ended_known: { asked: json, answer: json },
  announce: { asked: json, answer: json },
};

/**
 * A message between two threads: all numbers, separated by commas, a line feed, and all texts. Neither side has to copy
 * objects, and texts that are only stored are never parsed. One text crosses at a third of what any object costs, however
 * little is in that: it is copied once, and no memory is handed over that would have to be given back.
 */
export type Message = string;

/**
 * Writes values to a message, or reads them from one in the same order. Either way a method returns the value: when it
 * writes, the one that it was given; when it reads, it is given none.
 */
export interface Codec {
  number(value?: number): number;
  numberOr(value?: number | null): number | null;
  text(value?: string): string;
  textOr(value?: string | null): string | null;
  /** A text that is kept for longer than the message. It gets its own memory, unless it is most of the message. */
  keptText(value?: string): string;
  /** A count, and then that many items. */
  each<T>(form: Form<T>, values?: readonly T[]): readonly T[];
}

/** How a value stands in a message: writes the one that it is given, or reads one. */
export type Form<T> = (codec: Codec, value?: T) => T;

/** Stands for a text that is `null`. */
const NO_TEXT = -1;

export class Encoder implements Codec {
  #numbers: number[] = [];
  #texts = '';

  number(value?: number): number {
    if (value === undefined) throw new TypeError('a message of the store lacks a value');
    this.#numbers.push(value);
    return value;
  }

  numberOr(value: number | null = null): number | null {
    this.#numbers.push(value ?? Number.NaN);
    return value;
  }

  text(value?: string): string {
    if (value === undefined) throw new TypeError('a message of the store lacks a value');
    this.#numbers.push(value.length);
    this.#texts += value;
    return value;
  }

  textOr(value: string | null = null): string | null {
    if (value === null) this.#numbers.push(NO_TEXT);
    else this.text(value);
    return value;
  }

  keptText(value?: string): string {
    return this.text(value);
  }

  each<T>(form: Form<T>, values: readonly T[] = []): readonly T[] {
    this.#numbers.push(values.length);
    for (const value of values) form(this, value);
    return values;
  }

  /** What was written since the last call; `null` where it is nothing. */
  take(): Message | null {
    if (this.#numbers.length === 0) return null;
    const message = `${this.#numbers.join(',')}\n${this.#texts}`;
    this.#numbers = [];
    this.#texts = '';
    return message;
  }
}

export class Decoder implements Codec {
  readonly #numbers: readonly string[];
  readonly #message: Message;
  #at = 0;
  #place: number;

  constructor(message: Message) {
    const end = message.indexOf('\n');
    this.#numbers = message.slice(0, end).split(',');
    this.#message = message;
    this.#place = end + 1;
  }

  number(): number {
    const number = this.#numbers[this.#at];
    if (number === undefined) throw new TypeError('a message of the store ends too soon');
    this.#at += 1;
    return Number(number);
  }

  numberOr(): number | null {
    const value = this.number();
    return Number.isNaN(value) ? null : value;
  }

  text(): string {
    const begin = this.#place;
    this.#place += this.number();
    return this.#message.slice(begin, this.#place);
  }

  textOr(): string | null {
    const length = this.number();
    if (length === NO_TEXT) return null;
    const begin = this.#place;
    this.#place += length;
    return this.#message.slice(begin, this.#place);
  }

  keptText(): string {
    const text = this.text();
    return 2 * text.length < this.#message.length ? ownText(text) : text;
  }

  each<T>(form: Form<T>): T[] {
    const all: T[] = [];
    for (let left = this.number(); left > 0; left -= 1) all.push(form(this));
    return all;
  }

  isAtEnd(): boolean {
    return this.#at === this.#numbers.length;
  }
}
