import type { Change, ListQuery, Place, RowStore, Span, SumName, Want } from '../../port.ts';
import type { MessageReader, Writer } from './wire.ts';

/**
 * What a store is asked. A connection that only reads answers `list` and `ledger`, the one that writes everything else.
 */
export type Request =
  | { readonly op: 'commit'; readonly change: Change }
  | {
      readonly op: 'read';
      readonly workspace: string;
      readonly wants: readonly Want[];
      readonly sums: readonly SumName[];
    }
  | { readonly op: 'list'; readonly query: ListQuery }
  | { readonly op: 'ledger'; readonly query: Parameters<RowStore['ledger']>[0] }
  /** Figures by name, after a name. */
  | { readonly op: 'sums'; readonly workspace: string; readonly after: string | null; readonly limit: number }
  | { readonly op: 'prune'; readonly workspace: string; readonly limit: number }
  | { readonly op: 'watch'; readonly kinds: readonly string[] }
  /** Is answered when everything that is committed by now is durable. */
  | { readonly op: 'settled' };

const COMMIT = 1;
const READ = 2;
/** Rare requests are a JSON text. */
const OTHER = 3;

/** Adds a request to a message. */
export function writeRequest(writer: Writer, request: Request): void {
  switch (request.op) {
    case 'commit':
      writer.number(COMMIT);
      writeChange(writer, request.change);
      return;
    case 'read':
      writer.number(READ);
      writer.text(request.workspace);
      writer.number(request.wants.length);
      for (const want of request.wants) writeWant(writer, want);
      writer.number(request.sums.length);
      for (const sum of request.sums) writeSumName(writer, sum);
      return;
    case 'list':
    case 'ledger':
    case 'sums':
    case 'prune':
    case 'watch':
    case 'settled':
      writer.number(OTHER);
      writer.text(JSON.stringify(request));
  }
}

/** Reads what {@link writeRequest} wrote. */
export function readRequest(reader: MessageReader): Request {
  switch (reader.number()) {
    case COMMIT:
      return { op: 'commit', change: readChange(reader) };
    case READ:
      return {
        op: 'read',
        workspace: reader.text(),
        wants: reader.each(() => readWant(reader)),
        sums: reader.each(() => readSumName(reader)),
      };
    default:
      return JSON.parse(reader.text());
  }
}

function writeChange(writer: Writer, change: Change): void {
  const { guards, puts, sums, resets, events } = change;
  writer.text(change.id);
  writer.text(change.workspace);
  writer.number(change.epoch);
  writer.number(change.at);
  writer.number(change.from);
  writer.number(change.until);
  writer.number(guards.length);
  for (const guard of guards) {
    writeWant(writer, guard);
    writer.text(guard.version);
  }
  writer.number(puts.length);
  for (const put of puts) {
    writeWant(writer, put);
    writer.text(put.version);
    writer.textOr(put.text);
    writePlaces(writer, put.enter);
    writePlaces(writer, put.leave);
  }
  writer.number(sums.length);
  for (const sum of sums) {
    writeSumName(writer, sum);
    writer.number(sum.hold);
    writer.number(sum.spend);
    writer.numberOr(sum.limit);
    writer.numberOr(sum.most);
    writer.textOr(sum.text);
  }
  writer.number(resets.length);
  for (const group of resets) writer.text(group);
  writer.number(events.length);
  for (const { about, text } of events) {
    writer.textOr(about);
    writer.text(text);
  }
}

// JavaScript evaluates members in the order of the literal, so this order must be that of the message.
function readChange(reader: MessageReader): Change {
  return {
    id: reader.text(),
    workspace: reader.text(),
    epoch: reader.number(),
    at: reader.number(),
    from: reader.number(),
    until: reader.number(),
    guards: reader.each(() => ({ ...readWant(reader), version: reader.text() })),
    puts: reader.each(() => ({
      ...readWant(reader),
      version: reader.text(),
      text: reader.textOr(),
      enter: reader.each(() => readPlace(reader)),
      leave: reader.each(() => readPlace(reader)),
    })),
    sums: reader.each(() => ({
      ...readSumName(reader),
      hold: reader.number(),
      spend: reader.number(),
      limit: reader.numberOr(),
      most: reader.numberOr(),
      text: reader.textOr(),
    })),
    resets: reader.each(() => reader.text()),
    events: reader.each(() => ({ about: reader.textOr(), text: reader.text() })),
  };
}

function writeWant(writer: Writer, { kind, id, follow }: Want): void {
  writer.text(kind);
  writer.text(id);
  writer.textOr(follow ?? null);
}

function readWant(reader: MessageReader): Want {
  const kind = reader.text();
  const id = reader.text();
  const follow = reader.textOr();
  return follow === null ? { kind, id } : { kind, id, follow };
}

function writePlaces(writer: Writer, places: readonly Place[]): void {
  writer.number(places.length);
  for (const { list, at } of places) {
    writer.text(list);
    writer.number(at);
  }
}

function readPlace(reader: MessageReader): Place {
  return { list: reader.text(), at: reader.number() };
}

const UNTIL = 0;
const ROLLING = 1;

function writeSumName(writer: Writer, { name, span, group }: SumName): void {
  writer.text(name);
  writer.text(group);
  writer.number(span.kind === 'until' ? UNTIL : ROLLING);
  writer.number(span.kind === 'until' ? span.end : span.ms);
}

function readSumName(reader: MessageReader): SumName {
  return { name: reader.text(), group: reader.text(), span: readSpan(reader) };
}

function readSpan(reader: MessageReader): Span {
  return reader.number() === UNTIL ? { kind: 'until', end: reader.number() } : { kind: 'rolling', ms: reader.number() };
}
