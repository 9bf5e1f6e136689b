import { randomBytes } from 'node:crypto';
import { type StoreCommits, StoreUnavailable } from '../effects/store.ts';
import {
  ABSENT,
  type Answer,
  type Change,
  type Counter,
  type Row,
  type RowStore,
  type Seen,
  type SumName,
  type Want,
} from '../stores/port.ts';
import type { OpenProgram } from '../stores/open-rows.ts';
import { createDraft, type Draft, type OpenDraft, Unknown } from './draft.ts';
import type { Repository } from './kind.ts';
import { createRecentRows } from './recent-rows.ts';

/** How often a step is run again when its rows have changed. After that the store is too busy for it. */
const RUNS = 6;

const CLOSED = 'The store is closed.';

/** The most reads that one step may need for rows that it asks for as it runs. */
const READS = 200;

export type Made = Extract<Answer, { kind: 'done' }> & { readonly change: Change };

export type StepRunner = ReturnType<typeof createStepRunner>;

/** The record of a row as the store has it; `null`: absent. */
export async function readRecord<Stored>(
  runner: StepRunner,
  rows: Repository<Stored>,
  workspace: string,
  id: string,
): Promise<Stored | null> {
  const [row = null] = await runner.read(workspace, [{ kind: rows.kind, id }]);
  return row === null ? null : rows.of(row);
}

/** Thrown by a step when something else has to be committed first. The step runs again afterwards. */
export class First {
  readonly work: () => Promise<unknown>;

  constructor(work: () => Promise<unknown>) {
    this.work = work;
  }
}

export function createStepRunner(store: RowStore) {
  const recent = createRecentRows();
  const epochs = new Map<string, number>();
  const boot = randomBytes(9).toString('base64url');
  let changes = 0;
  const answered = { done: 0, moved: 0, givenUp: 0 };

  function nextId(): string {
    changes += 1;
    return `${boot}.${changes.toString(36)}`;
  }

  /** What one run of a step knows besides the remembered rows. */
  interface Known {
    /** Rows that the store returned; `null`: absent. */
    readonly rows: Map<string, Row | null>;
    /** Use only what the store returned, not what is remembered. */
    isRead: boolean;
    readonly counters: Map<string, Counter>;
    now: number;
    reads: number;
  }

  function learn(workspace: string, known: Known, seen: Pick<Seen, 'now' | 'epoch' | 'rows'>, asked: number): void {
    known.now = Math.max(known.now, seen.now);
    epochs.set(workspace, seen.epoch);
    recent.learn(workspace, seen.rows, asked);
    for (const { kind, id, row } of seen.rows) known.rows.set(`${kind}\n${id}`, row);
  }

  function learnCounters(known: Known, sums: readonly SumName[], counters: readonly Counter[]): void {
    for (const [index, { name }] of sums.entries()) {
      const counter = counters[index];
      if (counter !== undefined) known.counters.set(name, counter);
    }
  }

  function countRead(known: Known): void {
    known.reads += 1;
    if (known.reads > READS)
      throw new StoreUnavailable('The rows that the step needs change faster than they can be read.');
  }

  /** What was read is out of date once something else was committed. */
  function forget(known: Known): void {
    countRead(known);
    known.rows.clear();
    known.counters.clear();
    known.isRead = false;
  }

  async function readRows(
    workspace: string,
    known: Known,
    wants: readonly Want[],
    sums: readonly SumName[],
  ): Promise<Seen> {
    countRead(known);
    const asked = recent.tick();
    const seen = await store.read(workspace, wants, sums);
    learn(workspace, known, seen, asked);
    return seen;
  }

  async function readUnknown(workspace: string, known: Known, { wants, sums }: Unknown): Promise<void> {
    const seen = await readRows(workspace, known, wants, sums);
    learnCounters(known, sums, seen.counters);
  }

  const firstReads = new Map<string, Promise<Seen>>();
  /** If many steps come to a workspace at once, one looks for all. */
  async function firstRead(workspace: string, known: Known): Promise<void> {
    let reading = firstReads.get(workspace);
    if (reading === undefined) {
      reading = readRows(workspace, known, [], []).finally(() => firstReads.delete(workspace));
      firstReads.set(workspace, reading);
    }
    known.now = Math.max(known.now, (await reading).now);
  }

  function draftOn(workspace: string, epoch: number, known: Known): OpenDraft {
    return createDraft({
      workspace,
      epoch,
      now: Math.max(store.now(), known.now),
      row: (kind, id) =>
        (known.isRead ? undefined : recent.get(workspace, kind, id)) ?? known.rows.get(`${kind}\n${id}`),
      counter: ({ name }) => known.counters.get(name),
    });
  }

  /** A step that ran on what is known, or what has to be done before it can run. */
  type Drawn<Result> =
    | { readonly kind: 'drawn'; readonly result: Result; readonly draft: OpenDraft }
    | { readonly kind: 'first'; readonly work: () => Promise<unknown> };

  /** Synchronous: nothing else may run between the look at running changes and the change that results. */
  function draw<Result>(workspace: string, known: Known, step: (draft: Draft) => Result): Drawn<Result> {
    const epoch = epochs.get(workspace);
    if (epoch === undefined) return { kind: 'first', work: () => firstRead(workspace, known) };
    const draft = draftOn(workspace, epoch, known);
    try {
      return { kind: 'drawn', result: step(draft), draft };
    } catch (error) {
      if (error instanceof Unknown) return { kind: 'first', work: () => readUnknown(workspace, known, error) };
      if (error instanceof First) {
        const { work } = error;
        return { kind: 'first', work: () => work().then(() => forget(known)) };
      }
      return { kind: 'first', work: () => readAgain(workspace, known, error, draft) };
    }
  }

  /** Whether everything that a draft looked at is true at one moment. Rows that have changed are known afterwards. */
  async function isAsRead(workspace: string, known: Known, draft: OpenDraft): Promise<boolean> {
    const { rows, sums } = draft.observed();
    const seen = await readRows(workspace, known, rows, sums);
    learnCounters(known, sums, seen.counters);
    return rows.every(({ kind, id, version }) => (known.rows.get(`${kind}\n${id}`)?.version ?? ABSENT) === version);
  }

  /** Rows of different moments may contradict each other. An error is only real if all rows are of one moment. */
  async function readAgain(workspace: string, known: Known, error: unknown, draft: OpenDraft): Promise<void> {
    if (await isAsRead(workspace, known, draft)) throw error;
    known.isRead = true;
  }

  const begin = (): Known => ({ rows: new Map(), isRead: false, counters: new Map(), now: 0, reads: 0 });

  let closed = false;
  let underWay = 0;
  function begun(): void {
    if (closed) throw new StoreUnavailable(CLOSED);
    underWay += 1;
  }

  /** What a step said, and what was made of its change; `null`: it has to run again on what is known now. */
  type Ran<Result> = { readonly result: Result; readonly made: Made | null } | null;

  function commit<Result>(workspace: string, known: Known, result: Result, draft: OpenDraft): Promise<Ran<Result>> {
    const drafted = draft.change(nextId());
    if (drafted === null) return Promise.resolve({ result, made: null });
    const { change, written } = drafted;
    const asked = recent.tick();
    const changing = recent.begin(change.workspace, written);
    return store.commit(change).then(
      (answer) => {
        answered[answer.kind] += 1;
        if (answer.kind === 'done') {
          recent.done(changing);
          epochs.set(workspace, answer.epoch);
          return { result, made: { ...answer, change } };
        }
        recent.drop(changing);
        learn(workspace, known, answer, asked);
        learnCounters(known, change.sums, answer.counters);
        return null;
      },
      (error: unknown) => {
        recent.drop(changing);
        throw error;
      },
    );
  }

  /** Most steps are done with their first run, and each promise of a chain costs every call. */
  function runTo<Result, Answer>(
    workspace: string,
    step: (draft: Draft) => Result,
    answer: (result: Result, made: Made | null) => Answer,
  ): Promise<Answer> {
    if (closed) return Promise.reject(new StoreUnavailable(CLOSED));
    underWay += 1;
    const known = begin();
    let runs = 0;
    let ran: Promise<Ran<Result>>;
    try {
      const drawn = draw(workspace, known, step);
      if (drawn.kind === 'drawn') {
        runs = 1;
        ran = commit(workspace, known, drawn.result, drawn.draft);
      } else ran = drawn.work().then(() => null);
    } catch (error) {
      ran = Promise.reject(error);
    }
    return ran.then(
      (first) => {
        if (first === null)
          return runAgain(workspace, known, step, runs).then(({ result, made }) => answer(result, made));
        underWay -= 1;
        return answer(first.result, first.made);
      },
      (error: unknown) => {
        underWay -= 1;
        throw error;
      },
    );
  }

  async function runAgain<Result>(
    workspace: string,
    known: Known,
    step: (draft: Draft) => Result,
    runsSoFar: number,
  ): Promise<{ readonly result: Result; readonly made: Made | null }> {
    try {
      for (let runs = runsSoFar; runs < RUNS; ) {
        const drawn = draw(workspace, known, step);
        if (drawn.kind === 'first') {
          await drawn.work();
          continue;
        }
        const ran = await commit(workspace, known, drawn.result, drawn.draft);
        if (ran !== null) return ran;
        runs += 1;
      }
      answered.givenUp += 1;
      throw new StoreUnavailable('Too much happens at once around this action. Send the same call again.');
    } finally {
      underWay -= 1;
    }
  }

  /** What the step would say now, counters included; writes nothing. */
  async function peek<Result>(workspace: string, step: (draft: Draft) => Result): Promise<Result> {
    begun();
    try {
      const known = begin();
      for (;;) {
        const drawn = draw(workspace, known, step);
        if (drawn.kind === 'first') {
          await drawn.work();
          continue;
        }
        const { result, draft } = drawn;
        const { rows, sums } = draft.observed();
        if (rows.length + sums.length === 0) return result;
        const countersKnown = sums.every(({ name }) => known.counters.has(name));
        if ((await isAsRead(workspace, known, draft)) && countersKnown) return result;
        // A running change may still fail, so do not count on it.
        known.isRead = true;
      }
    } finally {
      underWay -= 1;
    }
  }

  /** Rows as the store has them, to be shown. */
  async function read(workspace: string, wants: readonly Want[]): Promise<readonly (Row | null)[]> {
    begun();
    try {
      const asked = recent.tick();
      const seen = await store.read(workspace, wants, [], true);
      recent.learn(workspace, seen.rows, asked);
      return wants.map(({ kind, id }) => seen.rows.find((row) => row.kind === kind && row.id === id)?.row ?? null);
    } finally {
      underWay -= 1;
    }
  }

  return {
    /**
     * Runs a step and commits what it writes. The step is a pure function of its draft. If rows have changed meanwhile,
     * it runs again on the new rows.
     * @returns what the step said and what the store assigned; `made` is `null` if there was nothing to commit
     * @throws StoreUnavailable
     */
    run: <Result>(
      workspace: string,
      step: (draft: Draft) => Result,
    ): Promise<{ readonly result: Result; readonly made: Made | null }> =>
      runTo(workspace, step, (result, made) => ({ result, made })),
    runTo,
    peek,
    read,
    // Each promise of a chain costs every call: this is the only one between a step and the store's thread.
    elsewhere: <T>(
      ask: OpenProgram['ask'],
      request: string,
      read: (answer: string) => T,
      isCommit: boolean,
    ): Promise<T> =>
      new Promise((resolve, reject) => {
        begun();
        ask(
          request,
          (answer) => {
            underWay -= 1;
            if (isCommit) answered.done += 1;
            try {
              resolve(read(answer));
            } catch (error) {
              reject(error);
            }
          },
          (error) => {
            underWay -= 1;
            reject(error);
          },
        );
      }),
    /** How the store answered so far. */
    commits: (): StoreCommits => ({ ...answered }),
    /** Waits for running steps; no new ones start. */
    async close(): Promise<void> {
      // Between two of its steps a call has no running change.
      do await new Promise((resolve) => setImmediate(resolve));
      while (underWay > 0);
      closed = true;
    },
  };
}
