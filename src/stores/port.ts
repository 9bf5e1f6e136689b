/*
 * The port between the rules and a store. Rules run in the gateway; a store reads, commits and watches. It knows rows,
 * counters and a ledger, but nothing about decisions. Everything that passes is plain data, so that it can be sent over
 * a socket.
 */

/** The name of a row within a workspace. Kinds and ids are the caller's; an id is any text. */
export interface RowName {
  readonly kind: string;
  readonly id: string;
}

/**
 * A row. `version` is the id of the change that wrote it last. No two changes have the same id, so a row that was
 * removed and written again has another version. The store does not read `text`.
 */
export interface Row {
  readonly version: string;
  readonly text: string;
}

/** The version of a row that is not there. */
export const ABSENT = '';

/** A row to read. With `follow`, the row of that kind whose id is this row's text is read as well, if there is one. */
export interface Want extends RowName {
  readonly follow?: string | undefined;
}

/** A row as it was found; `null`: absent. */
export interface Found extends RowName {
  readonly row: Row | null;
}

/** A row that the step looked at and does not write. It must still be as it was seen. */
export interface Guard extends Want {
  /** {@link ABSENT} if it was not there. */
  readonly version: string;
}

/**
 * A place in a list of the workspace. All rows of a list are of one kind, and a row has at most one place in it. Lists
 * are read in the order of `at` (a whole number from 0 on, mostly ms), then of the rows' ids: ASCII ids by their
 * characters, others in an order of the store, which is always the same.
 */
export interface Place {
  readonly list: string;
  readonly at: number;
}

/** A row to write, guarded by the version that it replaces. */
export interface Put extends Want {
  readonly version: string;
  /** `null`: the row is removed. */
  readonly text: string | null;
  /** Lists that the row enters, and lists that it leaves (first). A place in both stays unchanged. */
  readonly enter: readonly Place[];
  readonly leave: readonly Place[];
}

/**
 * The span of a counter: until a time, or the last `ms`. A rolling one is divided into 1,000 slots: what was spent
 * counts until the end of its slot is a whole window ago.
 */
export type Span = { readonly kind: 'until'; readonly end: number } | { readonly kind: 'rolling'; readonly ms: number };

export interface SumName {
  /** Unique in the workspace. It contains the span too, so that the span of a name never changes. */
  readonly name: string;
  readonly span: Span;
  /** Counters that are counted, listed and reset together. */
  readonly group: string;
}

/**
 * A change of a counter. Changes can be made in any order: nothing that they are computed from is guarded, and the store
 * itself checks the limit. Amounts are whole numbers up to 2^53-1.
 */
export interface SumChange extends SumName {
  /** Set aside, or (below zero) given back. The amount set aside never falls below zero. */
  readonly hold: number;
  readonly spend: number;
  /** The change is refused if spent + held + hold + spend would be more; `null`: no limit. */
  readonly limit: number | null;
  /**
   * The change is refused if it would add one more counter of the group that counts something, beyond this number;
   * `null`: no limit.
   */
  readonly most: number | null;
  /** Kept with the counter for readers; `null` keeps the existing text. */
  readonly text: string | null;
}

export interface Counter {
  readonly spent: number;
  readonly held: number;
  /**
   * How many counters of the group count something: their span is not over (rolling: something is in it), or something
   * is held.
   */
  readonly rows: number;
}

/** An event of the ledger before it has a place and a time. `about`: an id by which it can be found. */
export interface EventDraft {
  readonly about: string | null;
  readonly text: string;
}

/** An event. `seq` counts from 1 in the workspace, without gaps; `at` is the store's time of its change, ms. */
export interface LedgerEntry extends EventDraft {
  readonly epoch: number;
  readonly seq: number;
  readonly at: number;
}

/** All or nothing. A row appears only once among the guards and puts, a counter only once among the sums. */
export interface Change {
  /** Never used twice; without blanks; at most 40 characters. */
  readonly id: string;
  readonly workspace: string;
  /** Grows when the store may have lost what was acknowledged. If it differs from the store's: `moved`. */
  readonly epoch: number;
  /**
   * The time at which the step ran, ms. Once the change is made, the store's time is at least this, so that anything
   * told about the change afterwards has a later time.
   */
  readonly at: number;
  /** The store's time must be in [from, until), ms; otherwise: `moved`. */
  readonly from: number;
  readonly until: number;
  readonly guards: readonly Guard[];
  readonly puts: readonly Put[];
  readonly sums: readonly SumChange[];
  /**
   * Groups whose counters are reset before `sums`: counters that hold nothing are removed, and for the others nothing is
   * spent.
   */
  readonly resets: readonly string[];
  readonly events: readonly EventDraft[];
}

/**
 * `done`: made and durable. A change without writes is done if its guards hold, and then what it confirms is durable.
 * `moved`: nothing was written. It has the rows of guards and puts that differ from what was said (and what they
 * follow), and all counters of its sums as they are. Of the other changes of a batch, only those before this one affect
 * the answer.
 */
export type Answer =
  | {
      readonly kind: 'done';
      readonly now: number;
      readonly epoch: number;
      /** The place of the first event, or of the next one if the change has no events. */
      readonly seq: number;
      /** After the change, in the order of its sums. */
      readonly counters: readonly Counter[];
    }
  | ({ readonly kind: 'moved' } & Seen);

/** Everything that was read together: one state of the workspace. */
export interface Seen {
  readonly now: number;
  readonly epoch: number;
  readonly rows: readonly Found[];
  readonly counters: readonly Counter[];
}

export interface ListQuery {
  readonly workspace: string;
  readonly list: string;
  readonly kind: string;
  readonly order: 'up' | 'down';
  /** Bounds of `at`, both inclusive; `null`: none. */
  readonly from: number | null;
  readonly to: number | null;
  /** Begin after this place, in the requested order; `null` begins at the start. */
  readonly after: { readonly at: number; readonly id: string } | null;
  /**
   * The most entries, and the most characters of texts, not counting the first row. Fewer may come: `more` says whether
   * others follow.
   */
  readonly limit: number;
  readonly characters: number;
}

/** Events with `seq` greater than `after` (less, if downwards), in the requested order; `about`: only those of one id. */
export interface LedgerQuery {
  readonly workspace: string;
  readonly about: string | null;
  readonly order: 'up' | 'down';
  readonly after: number | null;
  readonly limit: number;
}

export interface Listed {
  readonly entries: readonly { readonly at: number; readonly id: string; readonly row: Row }[];
  readonly more: boolean;
}

export interface SumListed extends Counter {
  readonly name: string;
  readonly group: string;
  readonly text: string;
}

/** Changes of rows that are watched. `id` `null`: any of the kind may have changed; `workspace` `null`: in any workspace. */
export interface Watched {
  readonly workspace: string | null;
  readonly kind: string;
  readonly id: string | null;
}

/**
 * A store. Everything that it answers is durable. A method rejects with `StoreUnavailable` if it cannot answer. Then
 * the change may or may not have been made. Changes that are passed in one turn of the event loop are sent and made
 * together, in order. Each decides before it writes, so that a refused change does not damage the others.
 */
export interface RowStore {
  /**
   * @param isShown the result is only shown, and nothing is decided on it. Then it may not be durable yet, and can be
   *   read even while nothing can be written. `epoch` is 0 if nothing was ever written.
   */
  read(workspace: string, wants: readonly Want[], sums: readonly SumName[], isShown?: boolean): Promise<Seen>;
  commit(change: Change): Promise<Answer>;
  /**
   * Rows for people, in the order of their names, from where lists are read: no step waits for it. `null`: there is none.
   * Large ones may leave no room for the last of them: the answer is shorter then, but has the first.
   */
  rows(workspace: string, names: readonly RowName[]): Promise<readonly (Row | null)[]>;
  list(query: ListQuery): Promise<Listed>;
  /**
   * Counters of the workspace that count something. They are read a few at a time, and changes are made in between: each
   * counter is as it was at some time of the read.
   */
  sums(workspace: string, limit: number): Promise<readonly SumListed[]>;
  ledger(query: LedgerQuery): Promise<readonly LedgerEntry[]>;
  /** Calls the listener within a second for changes of rows of these kinds, whoever made them. */
  watch(kinds: readonly string[], listener: (changed: Watched) => void): void;
  /** Removes counters that no longer count anything, at most `limit`. */
  prune(workspace: string, limit: number): Promise<number>;
  /** The last seen store time plus the time that has passed since, ms. */
  readonly now: () => number;
  close(): Promise<void>;
}

/** A row in memory, with what its reader made of the text: only the reader's own kind uses `read`. */
export interface ReadRow extends Row {
  read?: object | undefined;
  /** Steps seldom look at it again, so what was made of it is not kept. */
  isOver?: boolean;
}

/**
 * One workspace within a transaction of the store, for who runs in the thread that has the file. Nobody else writes
 * between what is read here and what is written, and what is written is there at once.
 */
export interface LocalRows {
  readonly workspace: string;
  /** The store's time of the transaction, ms. */
  readonly now: number;
  readonly epoch: number;
  /** The row that is there now. It is the same object for as long as it is remembered, and changes when it is written. */
  row(kind: string, id: string): ReadRow | null;
  /** The row that a {@link put} replaces; `null` if there is none, or nobody looked here. */
  replaced(kind: string, id: string): ReadRow | null;
  /**
   * Writes a row, or removes it. `before`: the places of the one that is there. One that nobody looked at is new.
   * @throws TypeError where there is one that nobody looked at here
   */
  put(
    kind: string,
    id: string,
    text: string | null,
    places: readonly Place[],
    before: readonly Place[],
  ): ReadRow | null;
  counter(name: SumName): Counter;
  counterAsStored(name: SumName): Counter;
  /** @throws TypeError where the counter would pass its limit */
  sum(change: SumChange): void;
  /** The place of the next event. */
  nextSeq(): number;
  events(events: readonly EventDraft[]): void;
  reset(group: string): void;
  /** Says nothing here: the transaction has one time. */
  validUntil(at: number): void;
  list(query: Omit<ListQuery, 'workspace'>): Listed;
}

export interface LocalStore {
  readonly now: number;
  in(workspace: string): LocalRows;
}
