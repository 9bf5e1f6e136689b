import { StoreUnavailable } from '../../../effects/store.ts';
import type { Answer, Change } from '../../port.ts';
import type { Calls } from '../calls.ts';
import type { FleetSettings } from '../fleet.ts';
import { answerOf, packedChanges, seqOf } from './words.ts';

/** The most characters of texts in one script call. A larger change goes alone. */
const CHARACTERS = 256 * 1024;

/** How many script calls of one workspace may run at once. There is more than one only if each is full. */
const UNDER_WAY = 4;

interface Waiting {
  readonly change: Change;
  done(answer: Answer): void;
  failed(error: unknown): void;
}

interface Lane {
  queue: Waiting[];
  underWay: number;
  planned: boolean;
}

/** Commits together what is passed in one turn of the event loop. */
export class Batches {
  readonly #topology;
  readonly #journal;
  readonly #time;
  readonly #calls;
  readonly #most;
  readonly #report;
  readonly #lanes = new Map<string, Lane>();

  /**
   * @param most the most changes in one script call
   * @param report called for each batch that failed or could not be made durable
   */
  constructor(
    { topology, journal, time }: Pick<FleetSettings, 'topology' | 'journal' | 'time'>,
    calls: Calls,
    most: number,
    report: (error: StoreUnavailable) => void,
  ) {
    this.#topology = topology;
    this.#journal = journal;
    this.#time = time;
    this.#calls = calls;
    this.#most = most;
    this.#report = report;
  }

  /** `failed`: with StoreUnavailable if nobody knows whether the change was made, or it is not durable. */
  commit(change: Change, done: (answer: Answer) => void, failed: (error: unknown) => void): void {
    const { workspace } = change;
    let lane = this.#lanes.get(workspace);
    if (lane === undefined) {
      lane = { queue: [], underWay: 0, planned: false };
      this.#lanes.set(workspace, lane);
    }
    lane.queue.push({ change, done, failed });
    this.#plan(workspace, lane);
  }

  #plan(workspace: string, lane: Lane): void {
    if (lane.planned) return;
    lane.planned = true;
    setImmediate(() => {
      lane.planned = false;
      this.#send(workspace, lane);
    });
  }

  /** While a call runs, new changes wait for its answer; the next call then takes all of them. */
  #send(workspace: string, lane: Lane): void {
    while (lane.queue.length > 0 && lane.underWay < (lane.queue.length < this.#most ? 1 : UNDER_WAY)) {
      const batch = this.#next(lane);
      lane.underWay += 1;
      this.#commit(workspace, batch, () => {
        lane.underWay -= 1;
        if (lane.queue.length > 0) this.#plan(workspace, lane);
        else if (lane.underWay === 0) this.#lanes.delete(workspace);
      });
    }
  }

  #next(lane: Lane): readonly Waiting[] {
    let count = 0;
    let characters = 0;
    for (const { change } of lane.queue) {
      characters += sizeOf(change);
      if (count === this.#most || (count > 0 && characters > CHARACTERS)) break;
      count += 1;
    }
    return lane.queue.splice(0, count);
  }

  /** @param answered called when the script has answered or failed */
  #commit(workspace: string, batch: readonly Waiting[], answered: () => void): void {
    const fail = (error: unknown): void => {
      for (const { failed } of batch) failed(error);
    };
    let packed: Buffer;
    let asked: Promise<readonly unknown[]>;
    try {
      const changes: Change[] = [];
      for (const { change } of batch) changes.push(change);
      packed = packedChanges(changes);
      asked = this.#calls.evaluate('commit', workspace, [packed]);
    } catch (error) {
      answered();
      fail(error);
      return;
    }
    asked
      .then(
        (reply) => {
          answered();
          this.#whenDurable(workspace, batch, packed, reply);
        },
        (error: unknown) => {
          // The changes that waited behind it have waited long enough for a store that does not answer.
          if (error instanceof StoreUnavailable) {
            this.#report(error);
            for (const { failed } of this.#lanes.get(workspace)?.queue.splice(0) ?? []) failed(error);
          }
          answered();
          fail(error);
        },
      )
      .catch(fail);
  }

  /** Answers when the journal and the barrier have ended: also when one has failed, waits for the other. */
  #whenDurable(workspace: string, batch: readonly Waiting[], packed: Buffer, reply: readonly unknown[]): void {
    const [, at, epoch, step, ...replies] = reply;
    const now = Number(at);
    const answers: Answer[] = [];
    for (const index of batch.keys()) answers.push(answerOf(replies[index], now, Number(epoch)));
    this.#time.observe(now);
    let waitsFor = step === '' ? 1 : 2;
    let failure: StoreUnavailable | null = null;
    const ended = (error: StoreUnavailable | null): void => {
      failure ??= error;
      waitsFor -= 1;
      if (waitsFor > 0) return;
      if (failure !== null) this.#report(failure);
      for (const [index, { done, failed }] of batch.entries()) {
        const answer = answers[index];
        if (failure !== null || answer === undefined) failed(failure);
        else done(answer);
      }
    };
    if (step !== '') {
      const redo = replies.map(seqOf).join(',');
      const made = { workspace, step: Number(step), at: now, redo, batch: packed, epoch: Number(epoch) };
      this.#journal.append(made, (cause) =>
        ended(
          cause === null ? null : new StoreUnavailable('the journal beside the gateway cannot be written', { cause }),
        ),
      );
    }
    // What others wrote is shown only when it is as durable as this gateway's own writes.
    this.#topology.primaryOf(workspace).barrier.afterwards(workspace, String(epoch), ended);
  }
}

function sizeOf({ puts, events }: Change): number {
  let characters = 0;
  for (const { text } of puts) characters += text?.length ?? 0;
  for (const { text } of events) characters += text.length;
  return characters;
}
