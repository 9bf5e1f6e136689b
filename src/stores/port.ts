/*
 * The port between the rules and a store. Rules run in the gateway; a store reads, commits and watches. It knows rows,
 * figures and a ledger, and nothing of decisions. All that passes is plain data, so that it can be spoken over a socket.
 */

/** Where a row stands, within a workspace. Kinds and ids are the caller's; an id is any text. */
export interface RowName {
  readonly kind: string;
  readonly id: string;
}

/**
 * A row. `version` is the id of the change that wrote it last: no two changes have one id, so a row that went and came
 * again is another. `text` is opaque to the store.
 */
export interface Row {
  readonly version: string;
  readonly text: string;
}

/** The version of a row that is not there. */
export const ABSENT = '';

/** A row to read. With `follow`, the row of that kind whose id is this row's text comes as well, where there is one. */
export interface Want extends RowName {
  readonly follow?: string;
}

/** A row as it was found; `null`: absent. */
export interface Found extends RowName {
  readonly row: Row | null;
}

/** A row that the step looked at and does not write: it is to be as it was seen. */
export interface Guard extends Want {
  /** {@link ABSENT} where it was not there. */
  readonly version: string;
}

/**
 * A place in a list of the workspace, whose rows are all of one kind; a row has one place in it at most. Lists are read in
 * the order of `at` (a whole number from 0 on, ms as a rule), then of the rows' ids: ids of ASCII by their characters, others
 * in an order of the store's own, always the same.
 */
export interface Place {
  readonly list: string;
  readonly at: number;
}

/** A row to write, guarded by the version that it replaces. */
export interface Put extends Want {
  readonly version: string;
  /** `null`: the row goes. */
  readonly text: string | null;
  /** Lists that the row comes to stand in, and those that it leaves (first). A place in both is left alone. */
  readonly enter: readonly Place[];
  readonly leave: readonly Place[];
}

/**
 * The span of a figure: until a time; or the last `ms`. A rolling one is cut into 1,000 slots: what was spent counts
 * until the end of its slot is a whole window ago.
 */
export type Span = { readonly kind: 'until'; readonly end: number } | { readonly kind: 'rolling'; readonly ms: number };

/** Names a figure of the workspace. */
export interface SumName {
  /** Unique in the workspace; says the span too, so that it never changes under one name. */
  readonly name: string;
  readonly span: Span;
  /** Figures that are counted, listed and begun anew together. */
  readonly group: string;
}

/**
 * A change of a figure. Changes commute: nothing that they are computed from is guarded, and the store checks the limit
 * itself. Amounts are whole numbers up to 2^53-1.
 */
export interface SumChange extends SumName {
  /** Set aside, or (below zero) given back; what is set aside never falls below zero. */
  readonly hold: number;
  readonly spend: number;
  /** The change is refused where spent + held + hold + spend would be more; `null`: it is made all the same. */
  readonly limit: number | null;
  /** The change is refused where it would make one more figure of the group that counts something; `null`: no bound. */
  readonly most: number | null;
  /** Kept with the figure for readers; `null` leaves what is there. */
  readonly text: string | null;
}

/** A figure as it stands. */
export interface Figure {
  readonly spent: number;
  readonly held: number;
  /** Figures of the group that count something: span not over (rolling: something in it), or something held. */
  readonly rows: number;
}

/** An event of the ledger before it has a place and a time. `about`: the id of what it can be found by. */
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

/** All or nothing. A row is named once among its guards and puts, a figure once among its sums. */
export interface Change {
  /** Never used twice; without blanks; at most 40 characters. */
  readonly id: string;
  readonly workspace: string;
  /** Grows when the store may have lost what was acknowledged; another than the store's: `moved`. */
  readonly epoch: number;
  /**
   * The time that the step was run at, ms. Once the change is made the store's time is not before it, so that what is
   * told of it afterwards is told of a later time.
   */
  readonly at: number;
  /** The store's time must be in [from, until), ms; else: `moved`. */
  readonly from: number;
  readonly until: number;
  readonly guards: readonly Guard[];
  readonly puts: readonly Put[];
  readonly sums: readonly SumChange[];
  /** Groups whose figures begin anew, before `sums`: figures that hold nothing are gone, of others nothing is spent. */
  readonly resets: readonly string[];
  readonly events: readonly EventDraft[];
}

/**
 * `done`: made and durable; a change without writes is done where its guards hold, and what it confirms is durable.
 * `moved`: nothing was written; the rows of guards and puts that are not as they were said to be (and what they follow),
 * and every figure of its sums as it stands. Neither depends on the other changes of a batch, but for those before it.
 */
export type Answer =
  | {
      readonly kind: 'done';
      readonly now: number;
      readonly epoch: number;
      /** Of the first event; of the one that would be next where the change has none. */
      readonly seq: number;
      /** After the change, in the order of its sums. */
      readonly figures: readonly Figure[];
    }
  | {
      readonly kind: 'moved';
      readonly now: number;
      readonly epoch: number;
      readonly rows: readonly Found[];
      readonly figures: readonly Figure[];
    };

/** What is read together: one state of the workspace. */
export interface Seen {
  readonly now: number;
  readonly epoch: number;
  readonly rows: readonly Found[];
  readonly figures: readonly Figure[];
}

/** A slice of a list. */
export interface ListQuery {
  readonly workspace: string;
  readonly list: string;
  /** Kind of the rows that stand in it. */
  readonly kind: string;
  readonly order: 'up' | 'down';
  /** Bounds of `at`, both inclusive; `null`: none. */
  readonly from: number | null;
  readonly to: number | null;
  /** Beyond this place, in the order asked for; `null` begins at the start. */
  readonly after: { readonly at: number; readonly id: string } | null;
  /** Entries at most; and characters of texts at most, but for the first row. Fewer may come: `more` says whether others follow. */
  readonly limit: number;
  readonly characters: number;
}

export interface Listed {
  readonly entries: readonly { readonly at: number; readonly id: string; readonly row: Row }[];
  readonly more: boolean;
}

export interface SumListed extends Figure {
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
 * A store. Whatever it answers is durable. A method rejects with `StoreUnavailable` where it cannot answer: of a change
 * nothing may then be assumed to have happened, nor not to have happened. Several changes handed over in one turn of the
 * event loop travel and are made together, in order; each decides before it writes, so that one that is refused leaves its neighbours
 * whole.
 */
export interface RowStore {
  /**
   * @param isShown what comes is shown and nothing is decided on it: then it may not be durable yet, and comes also while nothing can
   * be written. `epoch` is 0 where nothing was ever written.
   */
  read(workspace: string, wants: readonly Want[], sums: readonly SumName[], isShown?: boolean): Promise<Seen>;
  commit(change: Change): Promise<Answer>;
  list(query: ListQuery): Promise<Listed>;
  /** Figures of the workspace that count something. */
  sums(workspace: string, limit: number): Promise<readonly SumListed[]>;
  /** Events with `seq` beyond `after`, in the order asked for; `about`: only those of one id. */
  ledger(query: {
    readonly workspace: string;
    readonly about: string | null;
    readonly order: 'up' | 'down';
    readonly after: number | null;
    readonly limit: number;
  }): Promise<readonly LedgerEntry[]>;
  /** Hears of changes of rows of some kinds, whoever made them, within a second. */
  watch(kinds: readonly string[], listener: (changed: Watched) => void): void;
  /** Removes figures that count nothing any more, at most `limit`. */
  prune(workspace: string, limit: number): Promise<number>;
  /** The store's time as last seen plus what has gone by since, ms. */
  now(): number;
  close(): Promise<void>;
}
