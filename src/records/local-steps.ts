import type { EffectRecord } from '../effects/model/effect.ts';
import type { Plan, StepView } from '../effects/steps/plan.ts';
import { type ReplyOf, type RequestOf, type StepName, stepOf } from '../effects/steps/table.ts';
import type { Ended } from '../stores/open-rows.ts';
import type { ListQuery, LocalRows, LocalStore } from '../stores/port.ts';
import { countedRows, countedToward, giveBack } from './counted.ts';
import { effectRows, LEASES } from './effect-rows.ts';
import type { Entry } from './lists.ts';
import { writeLost } from './steps.ts';
import { createThrottle } from './throttle.ts';
import { appendEvents, type ReadObserver, RecordsView, writePlan } from './view.ts';

/** No process of another gateway sends calls: the folder is locked. A frozen one finds its lease over when it wakes. */
const SETTINGS: Pick<StepView, 'maxFreezeMs' | 'leaseOwner'> = { maxFreezeMs: 0, leaseOwner: null };

/**
 * Runs steps in the thread that has the store's file, where nobody else writes between what a step sees and what it
 * writes: what it sees is what is there, and a step runs once.
 */
export class LocalSteps {
  readonly #ended: Ended;
  readonly #throttle = createThrottle();

  constructor(ended: Ended) {
    this.#ended = ended;
  }

  run<Name extends StepName>(
    store: LocalStore,
    name: Name,
    workspace: string,
    request: RequestOf<Name>,
  ): ReplyOf<Name> {
    if (this.#throttle.pending()) this.flushCounted(store);
    const rows = store.in(workspace);
    const plan = this.#plan(rows, name, request, true);
    const { throttle: word } = plan;
    if (word === undefined || this.#throttle.admits(word, workspace, plan.events ?? [], rows.now))
      writePlan(rows, plan);
    return plan.reply;
  }

  preview<Name extends StepName>(
    store: LocalStore,
    name: Name,
    workspace: string,
    request: RequestOf<Name>,
  ): ReplyOf<Name> {
    return this.#plan(store.in(workspace), name, request, false).reply;
  }

  /** @returns whether there was anything to declare */
  declareLost(store: LocalStore, workspace: string, id: string): boolean {
    return writeLost(store.in(workspace), id, this.#ended, SETTINGS);
  }

  /** Declares effects lost whose lease is over or whose owner has ended, at most `limit`. */
  declareLostLeases(store: LocalStore, workspace: string, limit: number): { lost: number; allDeclared: boolean } {
    const rows = store.in(workspace);
    const isAny = this.#ended.any(workspace);
    const asked = { list: LEASES, kind: effectRows.kind };
    // An effect whose owner has ended is declared before its lease is over, wherever it is in the list.
    const due: string[] = [];
    for (const { at, id, row } of entriesIn(rows, isAny ? asked : { ...asked, to: rows.now })) {
      const stored = effectRows.of(row);
      if (stored.kind !== 'effect' || stored.effect.life.state !== 'executing') continue;
      if (at > rows.now && this.#ended.quietAt(workspace, stored.effect.life.lease) === null) continue;
      due.push(id);
      if (due.length === limit) break;
    }
    const lost = due.filter((id) => writeLost(rows, id, this.#ended, SETTINGS)).length;
    const allDeclared = isAny && due.length < limit;
    if (allDeclared) this.#ended.none(workspace);
    return { lost, allDeclared };
  }

  /** Gives back what counts toward caps and is over, at most `limit`. */
  giveBackOver(rows: LocalRows, list: string, limit: number): void {
    const over: string[] = [];
    for (const { id } of entriesIn(rows, { list, kind: countedRows.kind, to: rows.now })) {
      if (over.length === limit) break;
      over.push(id);
    }
    for (const id of over) giveBack(rows, id);
  }

  /** Writes the counted refusals of seconds that are over. */
  flushCounted(store: LocalStore): void {
    for (const { workspace, event } of this.#throttle.due(store.now)) appendEvents(store.in(workspace), [event]);
  }

  /**
   * The plan of a step. Effects that it sees and whose owner has ended are declared lost first, and what is over is given
   * back before a cap refuses; the step then sees what that left.
   */
  #plan<Name extends StepName>(
    rows: LocalRows,
    name: Name,
    request: RequestOf<Name>,
    mayWrite: boolean,
  ): Plan<ReplyOf<Name>> {
    const observer = new BeforeStep(this.#ended, rows, mayWrite);
    for (;;) {
      try {
        return stepOf(name)(new RecordsView(rows, SETTINGS, observer.someEnded, observer), request);
      } catch (error) {
        if (!(error instanceof Before)) throw error;
        if (error.lost !== null) writeLost(rows, error.lost, this.#ended, SETTINGS);
        if (error.cap !== null) this.giveBackOver(rows, countedToward(error.cap), Infinity);
      }
    }
  }
}

/** Something has to be written before the step can run: an effect is lost, or what is over of a cap is given back. */
class Before extends Error {
  readonly lost: string | null;
  readonly cap: string | null;

  constructor(lost: string | null, cap: string | null) {
    super();
    this.lost = lost;
    this.cap = cap;
  }
}

/** Stops a step that comes upon something that has to be written before it. */
class BeforeStep implements ReadObserver {
  readonly someEnded: boolean;
  readonly #ended: Ended;
  readonly #rows: LocalRows;
  readonly #mayWrite: boolean;
  /** Caps that were seen to. */
  #done: Set<string> | null = null;

  constructor(ended: Ended, rows: LocalRows, mayWrite: boolean) {
    this.someEnded = ended.any(rows.workspace);
    this.#ended = ended;
    this.#rows = rows;
    this.#mayWrite = mayWrite;
  }

  seen({ id, life }: EffectRecord): void {
    if (!this.someEnded || life.state !== 'executing') return;
    if (this.#ended.quietAt(this.#rows.workspace, life.lease) !== null) throw new Before(id, null);
  }

  reached(cap: string): void {
    this.#done ??= new Set();
    if (this.#done.has(cap) || !this.#mayWrite) return;
    this.#done.add(cap);
    throw new Before(null, cap);
  }
}

function* entriesIn(
  rows: LocalRows,
  asked: Pick<ListQuery, 'list' | 'kind'> & Partial<Omit<ListQuery, 'workspace'>>,
): Generator<Entry> {
  let after: ListQuery['after'] = null;
  for (;;) {
    const slice = rows.list({
      order: 'up',
      from: null,
      to: null,
      limit: 200,
      characters: 1024 * 1024,
      ...asked,
      after,
    });
    yield* slice.entries;
    const last = slice.entries.at(-1);
    if (!slice.more || last === undefined) return;
    after = { at: last.at, id: last.id };
  }
}
