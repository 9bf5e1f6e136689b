import type { Place } from '../stores/port.ts';
import type { Draft, Look, ReadRow } from './draft.ts';

/**
 * A stored kind: how its records are written as rows, and the lists that they stand in. A new kind is one of these, and
 * the steps that look at it and put it.
 */
export interface Kind<Stored> {
  readonly name: string;
  /** @param before the record in whose place it is written; `null`: none */
  encode(stored: Stored, before: Stored | null): string;
  /** @throws TypeError for a text that is not of this kind */
  decode(text: string): Stored;
  /** The lists that a record stands in. */
  places(stored: Stored): readonly Place[];
  /** Whether a record is as it stays: steps look at it seldom, and it is not remembered for them. */
  isOver?(stored: Stored): boolean;
}

/** What is read and written of a kind. */
export interface Stock<Stored> {
  readonly kind: string;
  of(row: ReadRow): Stored;
  get(draft: Draft, id: string, look?: Look): Stored | null;
  /** Puts a record in place of the one that was looked at; one that was not looked at is new. `null` removes it. */
  put(draft: Draft, id: string, stored: Stored | null): void;
}

const NOWHERE: readonly Place[] = [];

/** Rows never change, so what one says is read once, and kept beside it. */
export function stock<Stored>({ name, encode, decode, places, isOver }: Kind<Stored>): Stock<Stored> {
  /** Of this kind and no other: so what a row says needs no look-up, and has its type. */
  class Read {
    readonly stored: Stored;

    constructor(stored: Stored) {
      this.stored = stored;
    }
  }

  function of(row: ReadRow): Stored {
    const { read } = row;
    if (read instanceof Read) return read.stored;
    const stored = decode(row.text);
    row.read = new Read(stored);
    return stored;
  }

  return {
    kind: name,
    of,
    get(draft, id, look) {
      const row = draft.row(name, id, look);
      return row === null ? null : of(row);
    },
    put(draft, id, stored) {
      const found = draft.found(name, id);
      const was = found === null ? null : of(found);
      const before = was === null ? NOWHERE : places(was);
      if (stored === null) {
        draft.put(name, id, null, NOWHERE, before);
        return;
      }
      const row = draft.put(name, id, encode(stored, was), places(stored), before);
      if (row === null) return;
      row.read = new Read(stored);
      if (isOver?.(stored) === true) row.isOver = true;
    },
  };
}

/** A kind whose records are JSON as they are. */
export function jsonKind<Stored>(name: string, places: (stored: Stored) => readonly Place[]): Kind<Stored> {
  return {
    name,
    encode: (stored) => JSON.stringify(stored),
    // What stands in a row of this kind was written by `encode`.
    decode: (text) => JSON.parse(text) as Stored,
    places,
  };
}

/** A kind whose records are texts, kept as they are. */
export function textKind(name: string, places: (stored: string) => readonly Place[] = () => []): Kind<string> {
  return { name, encode: (stored) => stored, decode: (text) => text, places };
}
