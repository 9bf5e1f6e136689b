import type { Json } from './value.ts';

/** A list or an object that is not closed yet. */
export interface Open {
  /** Names of the object so far, case-folded; `null` in a list. */
  readonly names: string[] | null;
  /** The same names as a set, once there are many. */
  many: Set<string> | null;
  /** Just after its bracket. */
  readonly start: number;
  /** Where its last comma so far is; -1 before the first. */
  comma: number;
  /** The name of its last member so far. */
  name: string;
  /** What was made of it so far; `null` where all of it is still text. */
  made: Made | null;
}

/** A value that is made part by part. */
export type Made =
  | { readonly kind: 'list'; readonly value: Json[] }
  | { readonly kind: 'object'; readonly value: Record<string, Json> };

export interface Scan {
  readonly text: string;
  readonly maxDepth: number;
  readonly maxValues: number;
  readonly maxName: number;
  readonly maxMembers: number;
  readonly open: Open[];
  at: number;
  values: number;
  /** Whether a whole value was just read. Otherwise the scan expects one. */
  isAfter: boolean;
  /** Where the value begins that is a text and is being read; -1 where none is. */
  textFrom: number;
  /** Of the text or name that is being read: it has escapes, and those of UTF-16 code units among them. */
  escaped: boolean;
  unicode: boolean;
  /** A name so far has escapes. */
  escapedNames: boolean;
  /** Characters that are read, and made, in one go. */
  readonly slice: number;
  /** Makes the values of the text up to a place; it is not called where the whole text is one slice. */
  readonly make: (scan: Scan, until: number) => void;
  /** All before this place has been made. */
  madeTo: number;
  /** What was made of the whole; `null` where it is still text. */
  root: Made | null;
}
