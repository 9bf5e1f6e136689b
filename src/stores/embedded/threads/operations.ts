import type { Answer, Change, EventDraft, Figure, Found, Listed, ListQuery, Place, Seen } from '../../port.ts';
import type { Guard, LedgerEntry, LedgerQuery, Put, Span, SumChange, SumListed, SumName, Want } from '../../port.ts';
import type { Form, Tape } from './tape.ts';
import { ownText } from '../tables/columns.ts';

/** What the store's threads do: what each operation is asked, and its answer. */
interface Operations {
  readonly commit: readonly [Change, Answer];
  readonly read: readonly [
    { readonly workspace: string; readonly wants: readonly Want[]; readonly sums: readonly SumName[] },
    Seen,
  ];
  /** Figures by name, after a name. */
  readonly sums: readonly [
    { readonly workspace: string; readonly after: string | null; readonly limit: number },
    readonly SumListed[],
  ];
  readonly prune: readonly [{ readonly workspace: string; readonly limit: number }, number];
  /** A request to the program of the store, and its answer. */
  readonly program: readonly [string, string];
  /** Kinds whose changes are told from now on. */
  readonly watch: readonly [readonly string[], null];
  /** Is answered when everything that is committed by now is durable. */
  readonly settled: readonly [null, null];
  readonly list: readonly [ListQuery, Listed];
  readonly ledger: readonly [LedgerQuery, readonly LedgerEntry[]];
}

export type Operation = keyof Operations;

/** What a connection does that only reads, for people. The one that writes does everything else. */
export type Looking = 'list' | 'ledger';
export type Writing = Exclude<Operation, Looking>;

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

const place: Form<Place> = (tape, it) => ({ list: tape.text(it?.list), at: tape.number(it?.at) });

const want: Form<Want> = (tape, it) => ({
  kind: tape.text(it?.kind),
  id: tape.text(it?.id),
  follow: tape.textOr(it?.follow) ?? undefined,
});

const guard: Form<Guard> = (tape, it) => ({
  kind: tape.text(it?.kind),
  id: tape.text(it?.id),
  follow: tape.textOr(it?.follow) ?? undefined,
  version: tape.text(it?.version),
});

const put: Form<Put> = (tape, it) => ({
  kind: tape.text(it?.kind),
  id: tape.text(it?.id),
  follow: tape.textOr(it?.follow) ?? undefined,
  version: tape.text(it?.version),
  text: tape.textOr(it?.text),
  enter: tape.each(place, it?.enter),
  leave: tape.each(place, it?.leave),
});

const UNTIL = 0;
const ROLLING = 1;

const span: Form<Span> = (tape, it) =>
  tape.number(it?.kind === 'rolling' ? ROLLING : UNTIL) === ROLLING
    ? { kind: 'rolling', ms: tape.number(it?.kind === 'rolling' ? it.ms : undefined) }
    : { kind: 'until', end: tape.number(it?.kind === 'until' ? it.end : undefined) };

const sumName: Form<SumName> = (tape, it) => ({
  name: tape.text(it?.name),
  group: tape.text(it?.group),
  span: span(tape, it?.span),
});

const sumChange: Form<SumChange> = (tape, it) => ({
  name: tape.text(it?.name),
  group: tape.text(it?.group),
  span: span(tape, it?.span),
  hold: tape.number(it?.hold),
  spend: tape.number(it?.spend),
  limit: tape.numberOr(it?.limit),
  most: tape.numberOr(it?.most),
  text: tape.textOr(it?.text),
});

const text: Form<string> = (tape, it) => tape.text(it);

const event: Form<EventDraft> = (tape, it) => ({ about: tape.textOr(it?.about), text: tape.text(it?.text) });

const change: Form<Change> = (tape, it) => ({
  id: tape.text(it?.id),
  workspace: tape.text(it?.workspace),
  epoch: tape.number(it?.epoch),
  at: tape.number(it?.at),
  from: tape.number(it?.from),
  until: tape.number(it?.until),
  guards: tape.each(guard, it?.guards),
  puts: tape.each(put, it?.puts),
  sums: tape.each(sumChange, it?.sums),
  resets: tape.each(text, it?.resets),
  events: tape.each(event, it?.events),
});

const figure: Form<Figure> = (tape, it) => ({
  spent: tape.number(it?.spent),
  held: tape.number(it?.held),
  rows: tape.number(it?.rows),
});

/** The gateway keeps the rows that it gets, so they need texts of their own. */
function found(tape: Tape, it?: Found): Found {
  const kind = tape.keptText(it?.kind);
  const id = tape.keptText(it?.id);
  const version = tape.textOr(it?.row?.version);
  return {
    kind,
    id,
    row: version === null ? null : { version: ownText(version), text: tape.keptText(it?.row?.text) },
  };
}

const seen: Form<Seen> = (tape, it) => ({
  now: tape.number(it?.now),
  epoch: tape.number(it?.epoch),
  rows: tape.each(found, it?.rows),
  figures: tape.each(figure, it?.figures),
});

const DONE = 0;
const MOVED = 1;

function answer(tape: Tape, it?: Answer): Answer {
  if (tape.number(it?.kind === 'moved' ? MOVED : DONE) === MOVED)
    return { kind: 'moved', ...seen(tape, it?.kind === 'moved' ? it : undefined) };
  return {
    kind: 'done',
    now: tape.number(it?.now),
    epoch: tape.number(it?.epoch),
    seq: tape.number(it?.kind === 'done' ? it.seq : undefined),
    figures: tape.each(figure, it?.figures),
  };
}

const listed: Form<Listed> = (tape, it) => ({
  more: tape.number(it?.more === true ? 1 : 0) === 1,
  entries: tape.each(
    (_, entry) => ({
      at: tape.number(entry?.at),
      id: tape.text(entry?.id),
      row: { version: tape.text(entry?.row.version), text: tape.text(entry?.row.text) },
    }),
    it?.entries,
  ),
});

const ledgerEntry: Form<LedgerEntry> = (tape, it) => ({
  epoch: tape.number(it?.epoch),
  seq: tape.number(it?.seq),
  at: tape.number(it?.at),
  about: tape.textOr(it?.about),
  text: tape.text(it?.text),
});

/** The form of what is rare. */
function json<T>(tape: Tape, it?: T): T {
  if (it === undefined) return JSON.parse(tape.text());
  tape.text(JSON.stringify(it));
  return it;
}

/** How each operation crosses from one thread to another. */
export const FORMS: { readonly [Op in Operation]: { asked: Form<Asked<Op>>; answer: Form<AnswerTo<Op>> } } = {
  commit: { asked: change, answer },
  read: {
    asked: (tape, it) => ({
      workspace: tape.text(it?.workspace),
      wants: tape.each(want, it?.wants),
      sums: tape.each(sumName, it?.sums),
    }),
    answer: seen,
  },
  list: { asked: json, answer: listed },
  ledger: { asked: json, answer: (tape, it) => tape.each(ledgerEntry, it) },
  sums: { asked: json, answer: json },
  prune: { asked: json, answer: json },
  program: { asked: text, answer: text },
  watch: { asked: json, answer: json },
  settled: { asked: json, answer: json },
};
