import {
  ABSENT,
  type Answer,
  type Change,
  type EventDraft,
  type Found,
  type ListQuery,
  type Put,
  type RowStore,
  type SumChange,
} from '../../src/stores/port.ts';

/** What a test needs of an opener of stores. One store serves many tests: each has a workspace of its own. */
export interface PortFixture {
  readonly store: RowStore;
  /** Ends the store and opens the same again. */
  reopen(): Promise<RowStore>;
  /** Sets the store's time, which only grows; `null` where the store does not run by the test's clock. */
  readonly setClock: ((now: number) => void) | null;
  close(): Promise<void>;
}

/** A promise that is asked of stores that run by the test's clock; the title of a suite says which do not. */
export type Timed = (promise: string, check: () => Promise<void>) => void;

/** The clock of a store that runs by the test's. */
export function clockOf({ setClock }: PortFixture): (now: number) => void {
  if (setClock === null) throw new Error('the store does not run by the clock of the test');
  return setClock;
}

export type OpenPort = () => Promise<PortFixture>;

let count = 0;

/** An id that no other change has. */
export function changeId(): string {
  count += 1;
  return `c${process.pid}-${Date.now().toString(36)}-${count}`;
}

/** A workspace that no other test has. */
export function newWorkspace(): string {
  count += 1;
  return `w${process.pid}-${count}`;
}

/** A change of nothing, at any time; with what a test wants of it. */
export function changeOf(workspace: string, epoch: number, parts: Partial<Change> = {}): Change {
  return {
    id: changeId(),
    workspace,
    epoch,
    at: 0,
    from: 0,
    until: Number.MAX_SAFE_INTEGER,
    guards: [],
    puts: [],
    sums: [],
    resets: [],
    events: [],
    ...parts,
  };
}

/** A put of a row that is not there. */
export function putOf(kind: string, id: string, text: string | null, parts: Partial<Put> = {}): Put {
  return { kind, id, text, version: ABSENT, enter: [], leave: [], ...parts };
}

/** A figure for ever, without bounds. */
export function sumOf(name: string, parts: Partial<SumChange> = {}): SumChange {
  return {
    name,
    span: { kind: 'until', end: Number.MAX_SAFE_INTEGER },
    group: 'group',
    hold: 0,
    spend: 0,
    limit: null,
    most: null,
    text: null,
    ...parts,
  };
}

export function eventOf(text: string, about: string | null = null): EventDraft {
  return { about, text };
}

export function listOf(workspace: string, list: string, parts: Partial<ListQuery> = {}): ListQuery {
  return {
    workspace,
    list,
    kind: 'thing',
    order: 'up',
    from: null,
    to: null,
    after: null,
    limit: 100,
    characters: 1_000_000,
    ...parts,
  };
}

type Done = Extract<Answer, { kind: 'done' }>;
type Moved = Extract<Answer, { kind: 'moved' }>;

export function done(answer: Answer): Done {
  if (answer.kind !== 'done') throw new Error(`not done: ${JSON.stringify(answer).slice(0, 2_000)}`);
  return answer;
}

export function moved(answer: Answer): Moved {
  if (answer.kind !== 'moved') throw new Error(`not moved: ${JSON.stringify(answer).slice(0, 2_000)}`);
  return answer;
}

/** The row of an answer; `undefined` where the answer does not speak of it. */
export function rowIn(rows: readonly Found[], kind: string, id: string): Found['row'] | undefined {
  return rows.find((found) => found.kind === kind && found.id === id)?.row;
}

/** A workspace of its own on a store, for one test. */
export interface Place {
  readonly workspace: string;
  readonly epoch: number;
  readonly store: RowStore;
  /** Commits a change of this workspace. */
  commit(parts: Partial<Change>): Promise<Answer>;
  row(kind: string, id: string): Promise<Found['row']>;
  ids(list: string, parts?: Partial<ListQuery>): Promise<readonly string[]>;
}

export async function newPlace(store: RowStore, workspace = newWorkspace()): Promise<Place> {
  const { epoch } = await store.read(workspace, [], []);
  return {
    workspace,
    epoch,
    store,
    commit: (parts) => store.commit(changeOf(workspace, epoch, parts)),
    async row(kind, id) {
      const { rows } = await store.read(workspace, [{ kind, id }], []);
      return rowIn(rows, kind, id) ?? null;
    },
    async ids(list, parts = {}) {
      const { entries } = await store.list(listOf(workspace, list, parts));
      return entries.map((entry) => entry.id);
    },
  };
}
