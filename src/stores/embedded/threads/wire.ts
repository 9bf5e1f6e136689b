import { ownText } from '../tables/own-text.ts';

/**
 * The form of messages between two threads: all numbers in one array, all texts in one string. Neither side has to copy
 * objects, and texts that are only stored are never parsed.
 */
export interface Message {
  readonly numbers: Float64Array;
  readonly texts: string;
}

export interface Writer {
  number(value: number): void;
  /** A number, or `null`. */
  numberOr(value: number | null): void;
  text(value: string): void;
  textOr(value: string | null): void;
  isEmpty(): boolean;
  /** What was written since the last call. */
  take(): Message;
}

const FIRST_ROOM = 1024;

/** Stands for a text that is `null`. */
const NO_TEXT = -1;

/** Collects a message. */
export function messageWriter(): Writer {
  let room = new Float64Array(FIRST_ROOM);
  let used = 0;
  let texts: string[] = [];

  function number(value: number): void {
    if (used === room.length) {
      const larger = new Float64Array(2 * used);
      larger.set(room);
      room = larger;
    }
    room[used] = value;
    used += 1;
  }

  function text(value: string): void {
    number(value.length);
    texts.push(value);
  }

  return {
    number,
    numberOr: (value) => number(value ?? Number.NaN),
    text,
    textOr(value) {
      if (value === null) number(NO_TEXT);
      else text(value);
    },
    isEmpty: () => used === 0,
    take() {
      const message = { numbers: room.slice(0, used), texts: texts.join('') };
      used = 0;
      texts = [];
      return message;
    },
  };
}

export interface MessageReader {
  number(): number;
  numberOr(): number | null;
  text(): string;
  textOr(): string | null;
  /** A text that is kept for longer than the message. It gets its own memory, unless it is most of the message. */
  keptText(): string;
  /** Reads a count and then that many items. */
  each<T>(read: () => T): T[];
  isAtEnd(): boolean;
}

/** Reads a message in the order in which it was written. */
export function messageReader({ numbers, texts }: Message): MessageReader {
  let at = 0;
  let place = 0;

  function number(): number {
    const value = numbers[at];
    if (value === undefined) throw new TypeError('a message of the store ends too soon');
    at += 1;
    return value;
  }

  function textOr(): string | null {
    const length = number();
    if (length === NO_TEXT) return null;
    const begin = place;
    place += length;
    return texts.slice(begin, place);
  }

  return {
    number,
    numberOr() {
      const value = number();
      return Number.isNaN(value) ? null : value;
    },
    text: () => textOr() ?? '',
    textOr,
    keptText() {
      const text = textOr() ?? '';
      return 2 * text.length < texts.length ? ownText(text) : text;
    },
    each<T>(read: () => T): T[] {
      const count = number();
      const all: T[] = [];
      for (let left = count; left > 0; left -= 1) all.push(read());
      return all;
    },
    isAtEnd: () => at === numbers.length,
  };
}
