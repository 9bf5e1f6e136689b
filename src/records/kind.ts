import type { Place, ReadRow } from '../stores/port.ts';
import type { Draft, ReadHint } from './draft.ts';
import { readOwnJson } from '../json/text.ts';

/**
 * A stored kind: how its records become rows, and the lists that they are in. A new kind needs one of these, and steps
 * that look at it and put it.
 */
export interface Kind<Stored> {
  readonly name: string;
  /** @param before the record that this one replaces; `null`: none */
  encode(stored: Stored, before: Stored | null): string;
  /** @throws TypeError for a text that is not of this kind */
  decode(text: string): Stored;
  places(stored: Stored): readonly Place[];
  /** Whether a record is final. Steps seldom look at it, so it is not remembered for them. */
  isOver?(stored: Stored): boolean;
}

export interface Repository<Stored> {
  readonly kind: string;
  of(row: ReadRow): Stored;
  get(draft: Draft, id: string, hint?: ReadHint): Stored | null;
  /** The record that a put would replace; `null` if there is none, or nobody looked. */
  replaced(draft: Draft, id: string): Stored | null;
  /** Puts a record in place of the one that was looked at. One that was not looked at is new. `null` removes it. */
  put(draft: Draft, id: string, stored: Stored | null): void;
}

const NOWHERE: readonly Place[] = [];

/** Rows never change, so each row is decoded once and keeps the result. */
export function repository<Stored>({ name, encode, decode, places, isOver }: Kind<Stored>): Repository<Stored> {
  /** Belongs to this kind only, so the result has the right type without a look-up. */
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

  function replaced(draft: Draft, id: string): Stored | null {
    const row = draft.replaced(name, id);
    return row === null ? null : of(row);
  }

  return {
    kind: name,
    of,
    get(draft, id, hint) {
      const row = draft.row(name, id, hint);
      return row === null ? null : of(row);
    },
    replaced,
    put(draft, id, stored) {
      const was = replaced(draft, id);
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

export function jsonKind<Stored>(name: string, places: (stored: Stored) => readonly Place[]): Kind<Stored> {
  return {
    name,
    encode: (stored) => JSON.stringify(stored),
    // Only `encode` writes the text of a row of this kind.
    decode: (text) => readOwnJson<Stored>(text),
    places,
  };
}

export function textKind(name: string, places: (stored: string) => readonly Place[] = () => []): Kind<string> {
  return { name, encode: (stored) => stored, decode: (text) => text, places };
}
