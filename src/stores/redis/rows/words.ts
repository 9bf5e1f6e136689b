import type { Answer, Change, Counter, Found, Put, Row, Span, SumName, Want } from '../../port.ts';
import { aboutName, counterName, kindName, namedRow, rowName, stored, unstored } from './names.ts';

/*
 * Changes in the form that the script `commit` reads: the names of rows and counters, each once, then the changes, which
 * refer to names by number. Numbers and other values become words when they are put into the array. All words are one
 * argument: the journal keeps the same bytes.
 */

/**
 * The numbers of names, from 1 on. The first ones are rows of which only the version is read, then the others.
 * @param heads names of rows that should be there
 */
function createNames(heads: ReadonlySet<string>) {
  const numbers = new Map<string, string>();
  for (const name of heads) numbers.set(name, String(numbers.size + 1));
  const others: string[] = [];
  return {
    number(name: string): string {
      const known = numbers.get(name);
      if (known !== undefined) return known;
      others.push(name);
      const number = String(numbers.size + 1);
      numbers.set(name, number);
      return number;
    },
    words: (): readonly string[] => [String(heads.size), ...heads, String(others.length), ...others],
  };
}

/** Rows that some change expects to be there. Their texts are mostly long, and not needed. */
function thoughtThere(changes: readonly Change[]): ReadonlySet<string> {
  const names = new Set<string>();
  for (const { guards, puts } of changes) {
    for (const { kind, id, version } of guards)
      if (version !== '' && version !== NO_VERSION) names.add(rowName(kind, id));
    for (const { kind, id, version } of puts) if (version !== '') names.add(rowName(kind, id));
  }
  return names;
}

/** A batch, in a Buffer of its own. */
export function packedChanges(changes: readonly Change[]): Buffer {
  const names = createNames(thoughtThere(changes));
  const words: Word[] = [];
  for (const change of changes) {
    const at = words.length;
    words.push('', change.id, String(change.epoch), String(change.from), String(change.until), String(change.at));
    words.push(String(change.guards.length));
    for (const { kind, id, version, follow } of change.guards)
      words.push(names.number(rowName(kind, id)), version, followed(follow));
    words.push(String(change.puts.length));
    for (const put of change.puts) addPut(words, names, change.id, put);
    words.push(String(change.sums.length));
    for (const sum of change.sums) {
      const { hold, spend, limit, most, text } = sum;
      words.push(
        names.number(counterName(sum.name)),
        stored(sum.group),
        spanWord(sum.span),
        String(hold),
        String(spend),
      );
      words.push(limit === null ? '' : String(limit), most === null ? '' : String(most));
      words.push(text === null ? '' : `=${stored(text)}`);
    }
    words.push(String(change.events.length));
    for (const { about, text } of change.events) words.push(aboutName(about), stored(text));
    words.push(String(change.resets.length));
    for (const group of change.resets) words.push(stored(group));
    words[at] = String(words.length - at - 1);
  }
  return packer.pack(names.words(), [String(changes.length)], words);
}

function addPut(words: Word[], names: ReturnType<typeof createNames>, change: string, put: Put): void {
  const { kind, id, version, follow, text, enter, leave } = put;
  words.push(names.number(rowName(kind, id)), version, followed(follow));
  words.push(text === null ? '' : [`${change} `, stored(text)]);
  words.push(text === null ? '-' : String(enter.length), String(leave.length));
  for (const { list } of leave) words.push(stored(list));
  // What comes last of a list is what becomes of the row there.
  if (text !== null) for (const { list, at } of enter) words.push(stored(list), String(at));
}

function followed(follow: string | undefined): string {
  return follow === undefined ? '' : kindName(follow);
}

function spanWord(span: Span): string {
  return span.kind === 'until' ? `u${span.end}` : `r${span.ms}`;
}

export function spanOf(word: string): Span {
  const ms = Number(word.slice(1));
  return word.startsWith('u') ? { kind: 'until', end: ms } : { kind: 'rolling', ms };
}

/** A version that no row has: versions have no blanks. */
const NO_VERSION = ' ';

/** What is read, as a change that cannot be made: so the answer has all its rows and counters. */
export function readChange(workspace: string, wants: readonly Want[], sums: readonly SumName[]): Change {
  return {
    ...NOTHING,
    id: 'look',
    workspace,
    guards: wants.map((want) => ({ ...want, version: NO_VERSION })),
    sums: sums.map((sum) => ({ ...sum, hold: 0, spend: 0, limit: null, most: null, text: null })),
  };
}

/** A change of nothing, that is never in time. */
export const NOTHING: Omit<Change, 'id' | 'workspace'> = {
  epoch: 0,
  at: 0,
  from: 0,
  until: 0,
  guards: [],
  puts: [],
  sums: [],
  resets: [],
  events: [],
};

export function answerOf(reply: unknown, now: number, epoch: number): Answer {
  if (typeof reply === 'string') {
    const [seq = '', ...numbers] = reply.slice(1).split(' ');
    return { kind: 'done', now, epoch, seq: Number(seq), counters: countersOf(numbers) };
  }
  if (!Array.isArray(reply)) throw new TypeError('an answer of the store has another form');
  const [counters, ...rows] = reply;
  return { kind: 'moved', now, epoch, rows: rowsOf(rows), counters: countersOf(numbersOf(counters)) };
}

/** The place of the first event of a change that was made; `''` if the change was not made. */
export function seqOf(reply: unknown): string {
  if (typeof reply !== 'string') return '';
  const blank = reply.indexOf(' ');
  return reply.slice(1, blank === -1 ? undefined : blank);
}

function numbersOf(text: unknown): readonly string[] {
  return typeof text !== 'string' || text === '' ? [] : text.split(' ');
}

function countersOf(numbers: readonly string[]): readonly Counter[] {
  const counters: Counter[] = [];
  for (let i = 0; i + 2 < numbers.length; i += 3)
    counters.push({ spent: Number(numbers[i]), held: Number(numbers[i + 1]), rows: Number(numbers[i + 2]) });
  return counters;
}

/** Rows in the form of a reply: name and value. */
function rowsOf(reply: readonly unknown[]): readonly Found[] {
  const found: Found[] = [];
  for (let i = 0; i + 1 < reply.length; i += 2) {
    const value = reply[i + 1];
    found.push({ ...namedRow(String(reply[i])), row: typeof value === 'string' ? rowOf(value) : null });
  }
  return found;
}

/** A row from `version text`. */
export function rowOf(value: string): Row {
  const blank = value.indexOf(' ');
  return { version: value.slice(0, blank), text: unstored(value.slice(blank + 1)) };
}

/*
 * A list of texts as MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), which scripts read with
 * `cmsgpack.unpack`. As arguments of its own, each would be written by the client, and made an object by the server.
 */

const FIX_STR = 0xa0;
const STR_32 = 0xdb;
const ARRAY_32 = 0xdd;
/** Of an array or text with its length. */
const HEADER_BYTES = 5;
/** The longest text whose length is in its first byte. */
const SHORT = 31;
/** The most bytes of a character that a string counts once. */
const BYTES_A_CHARACTER = 3;
const FIRST_BYTES = 64 * 1024;
/** More is given back after use. */
const KEPT_BYTES = 1024 * 1024;

/** A text, or two that become one: joined before, a long one would be copied once more. */
export type Word = string | readonly [string, string];

/** Packs texts. Keeps what it writes to from one use to the next. */
export class Packer {
  #bytes: Buffer = Buffer.allocUnsafeSlow(FIRST_BYTES);

  /** @returns in a Buffer of its own */
  pack(...lists: readonly (readonly Word[])[]): Buffer {
    let bytes = this.#bytes;
    let at = HEADER_BYTES;
    let count = 0;
    for (const words of lists) {
      count += words.length;
      // No function for each word: a call has hundreds of them.
      for (const word of words) {
        const start = typeof word === 'string' ? '' : word[0];
        const rest = typeof word === 'string' ? word : word[1];
        const most = at + HEADER_BYTES + (start.length + rest.length) * BYTES_A_CHARACTER;
        if (most > bytes.length) bytes = copyOf(bytes, at, Math.max(most, bytes.length * 2));
        if (start === '' && rest.length <= SHORT) {
          // Most words are numbers and names: the encoder costs more than they do.
          let i = 0;
          for (; i < rest.length; i += 1) {
            const code = rest.charCodeAt(i);
            if (code > 0x7f) break;
            bytes[at + 1 + i] = code;
          }
          if (i === rest.length) {
            bytes[at] = FIX_STR + i;
            at += 1 + i;
            continue;
          }
        }
        const begin = at + HEADER_BYTES;
        let end = begin + (start === '' ? 0 : bytes.write(start, begin));
        end += bytes.write(rest, end);
        bytes[at] = STR_32;
        bytes.writeUInt32BE(end - begin, at + 1);
        at = end;
      }
    }
    bytes[0] = ARRAY_32;
    bytes.writeUInt32BE(count, 1);
    this.#bytes = bytes.length > KEPT_BYTES ? Buffer.allocUnsafeSlow(FIRST_BYTES) : bytes;
    return Buffer.copyBytesFrom(bytes, 0, at);
  }
}

/** The first `length` bytes, in a Buffer of a size of its own. */
function copyOf(bytes: Buffer, length: number, size: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(size);
  bytes.copy(copy, 0, 0, length);
  return copy;
}

const packer = new Packer();
