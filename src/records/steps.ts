import type { StepView } from '../effects/steps/plan.ts';
import type { Admission, AdmitRequest, Settlement, SettleRequest } from '../effects/store.ts';
import { loseLeaseStep } from '../effects/steps/sweep.ts';
import { type ReplyOf, type RequestOf, type StepName, stepOf } from '../effects/steps/table.ts';
import type { Ended } from '../stores/open-rows.ts';
import type { RowStore } from '../stores/port.ts';
import { COUNTED, countedRows, countedToward, giveBack } from './counted.ts';
import type { Draft } from './draft.ts';
import { effectRows, LEASES } from './effect-rows.ts';
import { budgetSum } from './counters.ts';
import { entries, firstOf } from './lists.ts';
import { First, type Made, type StepRunner } from './runner.ts';
import { createThrottle } from './throttle.ts';
import { appendEvents, type ReadObserver, RecordsView, writePlan } from './view.ts';

/** Runs the rules' steps on the records of a store: in this thread, or in the one that has the store's file. */
export interface Steps {
  admit(request: AdmitRequest): Promise<Admission>;
  settle(request: SettleRequest): Promise<Settlement>;
  /** Any other step. */
  run<Name extends StepName>(name: Name, workspace: string, request: RequestOf<Name>): Promise<ReplyOf<Name>>;
  /** What the step would answer now. */
  preview<Name extends StepName>(name: Name, workspace: string, request: RequestOf<Name>): Promise<ReplyOf<Name>>;
  /**
   * Declares an effect lost if its owner has ended or its lease is over.
   * @returns whether there was anything to declare
   */
  declareLost(workspace: string, id: string): Promise<boolean>;
  /** Gives back what counts toward caps and is over, at most `limit`. */
  giveBackOver(workspace: string, limit: number): Promise<void>;
  /**
   * Declares effects lost whose lease is over or whose owner has ended, at most `limit`.
   * @returns how many, and whether none is left whose owner has ended
   */
  declareLostLeases(
    workspace: string,
    limit: number,
  ): Promise<{ readonly lost: number; readonly allDeclared: boolean }>;
  /** Whether counted refusals wait to be written. */
  hasCounted(): boolean;
  /** Writes the counted refusals of seconds that are over. */
  flushCounted(): Promise<void>;
}

/** Adds to the reply of an admission what the store assigned: its place in the ledger, and the counters of its budgets. */
export function placed<Reply>(reply: Reply, made: Pick<Made, 'epoch' | 'seq' | 'counters' | 'change'> | null): Reply {
  if (made === null || !isDispatch(reply)) return reply;
  const counters = new Map(made.change.sums.map(({ name }, index) => [name, made.counters[index]]));
  return {
    ...reply,
    ledger: { epoch: made.epoch, seq: made.seq + reply.ledger.seq },
    budgets: reply.budgets.map((row) => {
      const counter = counters.get(budgetSum(row).name);
      return counter === undefined ? row : { ...row, spent: counter.spent, held: counter.held };
    }),
  };
}

function isDispatch(reply: unknown): reply is Extract<Admission, { kind: 'dispatch' }> {
  return typeof reply === 'object' && reply !== null && 'kind' in reply && reply.kind === 'dispatch';
}

export const NO_OBSERVER: ReadObserver = { seen() {}, reached() {} };

/**
 * Declares an effect lost in a draft, if its owner has ended or its lease is over.
 * @returns whether there was anything to declare
 */
export function writeLost(
  draft: Draft,
  id: string,
  ended: Ended,
  settings: Pick<StepView, 'maxFreezeMs' | 'leaseOwner'>,
): boolean {
  const stored = effectRows.get(draft, id);
  if (stored?.kind !== 'effect' || stored.effect.life.state !== 'executing') return false;
  const { effect } = stored;
  const { lease } = stored.effect.life;
  const quiet = ended.quietAt(draft.workspace, lease);
  const life = { ...stored.effect.life, lease: quiet === null ? lease : { ...lease, quiesceUntil: quiet } };
  const plan = loseLeaseStep(new RecordsView(draft, settings, false, NO_OBSERVER), { ...effect, life }, quiet !== null);
  if (plan === null) return false;
  writePlan(draft, plan);
  return true;
}

/** Runs steps on what is remembered, guards what they saw, and runs them again where it has changed (decision 21). */
export function createSteps(
  store: RowStore,
  runner: StepRunner,
  { ended, maxFreezeMs }: { readonly ended: Ended; readonly maxFreezeMs: number },
): Steps {
  const throttle = createThrottle();
  const settings = { maxFreezeMs, leaseOwner: ended.owner };

  /** What is over and is given back at the moment, by workspace and thing. */
  const givingBack = new Map<string, Promise<unknown>>();

  /** However many are refused at once, each thing is given back once. */
  function giveBackThing(workspace: string, thing: string): Promise<unknown> {
    const name = `${workspace}\n${thing}`;
    let giving = givingBack.get(name);
    if (giving === undefined) {
      giving = runner.run(workspace, (draft) => giveBack(draft, thing)).finally(() => givingBack.delete(name));
      givingBack.set(name, giving);
    }
    return giving;
  }

  async function giveBackAll(workspace: string, list: string, limit: number): Promise<void> {
    const over = await firstOf(store, { workspace, list, kind: countedRows.kind, to: store.now() }, limit);
    await Promise.all(over.map(({ id }) => giveBackThing(workspace, id)));
  }

  /** For one run of a step: gives back what is over once for each cap that the step finds reached. */
  function oncePerCap(workspace: string): (cap: string) => void {
    const done = new Set<string>();
    return (cap) => {
      if (done.has(cap)) return;
      done.add(cap);
      throw new First(() => giveBackAll(workspace, countedToward(cap), Infinity));
    };
  }

  function viewOf(draft: Draft, reached: (cap: string) => void): StepView {
    const { workspace } = draft;
    const isAny = ended.any(workspace);
    return new RecordsView(draft, settings, isAny, {
      seen({ id, life }) {
        if (isAny && life.state === 'executing' && ended.quietAt(workspace, life.lease) !== null)
          throw new First(() => declareLost(workspace, id));
      },
      reached,
    });
  }

  async function declareLost(workspace: string, id: string): Promise<boolean> {
    const { result } = await runner.run(workspace, (draft) => writeLost(draft, id, ended, settings));
    return result;
  }

  const steps: Steps = {
    admit: (request) => steps.run('admit', request.workspace, request),
    settle: (request) => steps.run('settle', request.workspace, request),
    run(name, workspace, request) {
      const step = stepOf(name);
      /**
       * Refusals beyond the first ones of a second are not written. They are counted once, however often the step runs.
       */
      const reached = oncePerCap(workspace);
      let counted: { readonly word: string; readonly isWritten: boolean } | null = null;
      const run = (draft: Draft): ReplyOf<typeof name> => {
        const plan = step(viewOf(draft, reached), request);
        const { throttle: word } = plan;
        if (word !== undefined && counted?.word !== word) {
          const isWritten = throttle.admits(word, workspace, plan.events ?? [], draft.now);
          counted = { word, isWritten };
        }
        if (word === undefined || counted?.isWritten === true) writePlan(draft, plan);
        return plan.reply;
      };
      return runner.runTo(workspace, run, placed);
    },
    preview: (name, workspace, request) =>
      runner.peek(workspace, (draft) => stepOf(name)(viewOf(draft, NO_OBSERVER.reached), request).reply),
    declareLost,
    giveBackOver: (workspace, limit) => giveBackAll(workspace, COUNTED, limit),
    async declareLostLeases(workspace, limit) {
      const asked = { workspace, list: LEASES, kind: effectRows.kind };
      // An effect whose owner has ended is declared before its lease is over, so it may be anywhere in the list of
      // running effects.
      const isAny = ended.any(workspace);
      const due: string[] = [];
      for await (const { at, id, row } of entries(store, isAny ? asked : { ...asked, to: store.now() })) {
        const stored = effectRows.of(row);
        if (stored.kind !== 'effect' || stored.effect.life.state !== 'executing') continue;
        if (at > store.now() && ended.quietAt(workspace, stored.effect.life.lease) === null) continue;
        due.push(id);
        if (due.length === limit) break;
      }
      const declared = await Promise.all(due.map((id) => declareLost(workspace, id)));
      const allDeclared = isAny && due.length < limit;
      if (allDeclared) ended.none(workspace);
      return { lost: declared.filter(Boolean).length, allDeclared };
    },
    hasCounted: () => throttle.pending(),
    async flushCounted() {
      for (const { workspace, event } of throttle.due(store.now()))
        await runner.run(workspace, (draft) => appendEvents(draft, [event]));
    },
  };
  return steps;
}
