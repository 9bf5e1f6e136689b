import { ownText } from '../tables/columns.ts';

/**
 * The form of messages between two threads: all numbers in one array, all texts in one string. Neither side has to copy
 * objects, and texts that are only stored are never parsed. (Structured clones and JSON cost four times as much.)
 */
export interface Message {
  readonly numbers: Float64Array;
  readonly texts: string;
}

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

const FIRST_ROOM = 1024;

/** Stands for a text that is `null`. */
const NO_TEXT = -1;

export interface Encoder extends Codec {
  isEmpty(): boolean;
  /** What was written since the last call. */
  take(): Message;
}

/** A codec that collects a message. */
export function encoder(): Encoder {
  let room = new Float64Array(FIRST_ROOM);
  let used = 0;
  let texts: string[] = [];

  function number(value?: number): number {
    if (value === undefined) throw new TypeError('a message of the store lacks a value');
    if (used === room.length) {
      const larger = new Float64Array(2 * used);
      larger.set(room);
      room = larger;
    }
    room[used] = value;
    used += 1;
    return value;
  }

  function text(value?: string): string {
    number(value?.length);
    if (value !== undefined) texts.push(value);
    return value ?? '';
  }

  const codec: Encoder = {
    number,
    numberOr(value = null) {
      number(value ?? Number.NaN);
      return value;
    },
    text,
    textOr(value = null) {
      if (value === null) number(NO_TEXT);
      else text(value);
      return value;
    },
    keptText: text,
    each(form, values = []) {
      number(values.length);
      for (const value of values) form(codec, value);
      return values;
    },
    isEmpty: () => used === 0,
    take() {
      const message = { numbers: room.slice(0, used), texts: texts.join('') };
      used = 0;
      texts = [];
      return message;
    },
  };
  return codec;
}

export interface Decoder extends Codec {
  isAtEnd(): boolean;
}

/** A codec that reads a message. */
export function decoder({ numbers, texts }: Message): Decoder {
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

  const codec: Decoder = {
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
    each<T>(form: Form<T>): T[] {
      const count = number();
      const all: T[] = [];
      for (let left = count; left > 0; left -= 1) all.push(form(codec));
      return all;
    },
    isAtEnd: () => at === numbers.length,
  };
  return codec;
}
