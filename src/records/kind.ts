import type { Place, Row } from '../stores/port.ts';
import type { Draft, Look } from './draft.ts';

/**
 * A stored kind: how its records are written as rows, and the lists that they stand in. A new kind is one of these, and
 * the steps that look at it and put it.
 */
export interface Kind<Stored> {
  readonly name: string;
  encode(stored: Stored): string;
  /** @throws TypeError for a text that is not of this kind */
  decode(text: string): Stored;
  /** The lists that a record stands in. */
  places(stored: Stored): readonly Place[];
}

/** What is read and written of a kind. */
export interface Stock<Stored> {
  readonly kind: string;
  of(row: Row): Stored;
  get(draft: Draft, id: string, look?: Look): Stored | null;
  /** Puts a record in place of the one that was looked at; one that was not looked at is new. `null` removes it. */
  put(draft: Draft, id: string, stored: Stored | null): void;
}

/** Rows never change, so what one says is read once. */
export function stock<Stored>({ name, encode, decode, places }: Kind<Stored>): Stock<Stored> {
  const read = new WeakMap<Row, { readonly stored: Stored }>();
  const before = new WeakMap<Draft, Map<string, readonly Place[]>>();

  function of(row: Row): Stored {
    const known = read.get(row);
    if (known !== undefined) return known.stored;
    const stored = decode(row.text);
    read.set(row, { stored });
    return stored;
  }

  function get(draft: Draft, id: string, look?: Look): Stored | null {
    const row = draft.row(name, id, look);
    if (row === null) return null;
    const stored = of(row);
    let kept = before.get(draft);
    if (kept === undefined) {
      kept = new Map();
      before.set(draft, kept);
    }
    if (!kept.has(id)) kept.set(id, places(stored));
    return stored;
  }

  return {
    kind: name,
    of,
    get,
    put(draft, id, stored) {
      draft.put(
        name,
        id,
        stored === null ? null : encode(stored),
        stored === null ? [] : places(stored),
        before.get(draft)?.get(id) ?? [],
      );
      const row = stored === null ? null : draft.row(name, id);
      if (row !== null && stored !== null) read.set(row, { stored });
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
