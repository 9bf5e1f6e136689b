import type { Answer, Figure, Found, LedgerEntry, Listed, Seen, SumListed } from '../../port.ts';
import { ownText } from '../tables/own-text.ts';
import type { MessageReader, Writer } from './wire.ts';

/** The answers of the store's thread. */
export type Reply =
  | { readonly op: 'commit'; readonly answer: Answer }
  | { readonly op: 'read'; readonly seen: Seen }
  | { readonly op: 'list'; readonly listed: Listed }
  | { readonly op: 'ledger'; readonly entries: readonly LedgerEntry[] }
  | { readonly op: 'sums'; readonly sums: readonly SumListed[] }
  | { readonly op: 'prune'; readonly pruned: number }
  | { readonly op: 'watch' }
  | { readonly op: 'settled' }
  /** There is no answer: the store is unavailable, or the program has a fault. */
  | { readonly op: 'failed'; readonly kind: 'unavailable' | 'fault'; readonly message: string };

const DONE = 1;
const MOVED = 2;
const SEEN = 3;
const LISTED = 4;
const ENTRIES = 5;
/** Rare replies are a JSON text. */
const OTHER = 6;

/** Adds a reply to a message. */
export function writeReply(writer: Writer, reply: Reply): void {
  switch (reply.op) {
    case 'commit':
      writeAnswer(writer, reply.answer);
      return;
    case 'read':
      writer.number(SEEN);
      writeSeen(writer, reply.seen);
      return;
    case 'list': {
      const { entries, more } = reply.listed;
      writer.number(LISTED);
      writer.number(more ? 1 : 0);
      writer.number(entries.length);
      for (const { at, id, row } of entries) {
        writer.number(at);
        writer.text(id);
        writer.text(row.version);
        writer.text(row.text);
      }
      return;
    }
    case 'ledger':
      writer.number(ENTRIES);
      writer.number(reply.entries.length);
      for (const { epoch, seq, at, about, text } of reply.entries) {
        writer.number(epoch);
        writer.number(seq);
        writer.number(at);
        writer.textOr(about);
        writer.text(text);
      }
      return;
    case 'sums':
    case 'prune':
    case 'watch':
    case 'settled':
    case 'failed':
      writer.number(OTHER);
      writer.text(JSON.stringify(reply));
  }
}

/** Reads what {@link writeReply} wrote. */
export function readReply(reader: MessageReader): Reply {
  switch (reader.number()) {
    case DONE:
      return {
        op: 'commit',
        answer: {
          kind: 'done',
          now: reader.number(),
          epoch: reader.number(),
          seq: reader.number(),
          figures: reader.each(() => readFigure(reader)),
        },
      };
    case MOVED:
      return { op: 'commit', answer: { kind: 'moved', ...readSeen(reader) } };
    case SEEN:
      return { op: 'read', seen: readSeen(reader) };
    case LISTED: {
      const more = reader.number() === 1;
      const entries = reader.each(() => ({
        at: reader.number(),
        id: reader.text(),
        row: { version: reader.text(), text: reader.text() },
      }));
      return { op: 'list', listed: { entries, more } };
    }
    case ENTRIES:
      return {
        op: 'ledger',
        entries: reader.each(() => ({
          epoch: reader.number(),
          seq: reader.number(),
          at: reader.number(),
          about: reader.textOr(),
          text: reader.text(),
        })),
      };
    default:
      return JSON.parse(reader.text());
  }
}

function writeAnswer(writer: Writer, answer: Answer): void {
  if (answer.kind === 'moved') {
    writer.number(MOVED);
    writeSeen(writer, answer);
    return;
  }
  writer.number(DONE);
  writer.number(answer.now);
  writer.number(answer.epoch);
  writer.number(answer.seq);
  writeFigures(writer, answer.figures);
}

function writeSeen(writer: Writer, { now, epoch, rows, figures }: Seen): void {
  writer.number(now);
  writer.number(epoch);
  writer.number(rows.length);
  for (const { kind, id, row } of rows) {
    writer.text(kind);
    writer.text(id);
    writer.textOr(row === null ? null : row.version);
    if (row !== null) writer.text(row.text);
  }
  writeFigures(writer, figures);
}

function readSeen(reader: MessageReader): Seen {
  return {
    now: reader.number(),
    epoch: reader.number(),
    rows: reader.each(() => readFound(reader)),
    figures: reader.each(() => readFigure(reader)),
  };
}

/** The gateway keeps the rows that it gets, so they need texts of their own. */
function readFound(reader: MessageReader): Found {
  const kind = reader.keptText();
  const id = reader.keptText();
  const version = reader.textOr();
  return { kind, id, row: version === null ? null : { version: ownText(version), text: reader.keptText() } };
}

function writeFigures(writer: Writer, figures: readonly Figure[]): void {
  writer.number(figures.length);
  for (const { spent, held, rows } of figures) {
    writer.number(spent);
    writer.number(held);
    writer.number(rows);
  }
}

function readFigure(reader: MessageReader): Figure {
  return { spent: reader.number(), held: reader.number(), rows: reader.number() };
}
