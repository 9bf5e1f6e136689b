import { setTimeout as delay } from 'node:timers/promises';
import { dispatchGranted } from '../effects/run/decide-approval.ts';
import type { Note } from '../effects/model/note.ts';
import type { People } from '../effects/run/recall.ts';
import type { EffectPorts } from '../effects/ports.ts';
import { StoreUnavailable, type SweepReport } from '../effects/store.ts';
import type { SpillJournal } from '../stores/journal/spill.ts';

/** How many rows of each kind one round declares. */
const BATCH = 100;

/**
 * How many granted calls one round looks at, and the most rounds that a call waits if it is stopped again and again.
 */
const MOST_GRANTED = 1000;
const MOST_ROUNDS = 7;

export interface Swept extends SweepReport {
  /** When it did, by the machine's clock, ms. */
  readonly at: number;
}

/** After so long without a round that came to its end, people are told. */
const STANDS_STILL_MS = 10 * 60_000;

/** An outcome that nobody has settled for so long is told of. */
const LONG_UNKNOWN_MS = 60 * 60_000;

/**
 * Writes spilled settlements into the store, declares what has ended, and dispatches approved calls that a dead gateway
 * left behind. One round at a time; the next starts `everyMs` after the last one ended.
 */
export class Sweeper {
  readonly #ports;
  readonly #people;
  readonly #spill;
  readonly #everyMs;
  readonly #report;
  readonly #stopped = new AbortController();
  #last: Swept | null = null;
  /** Granted calls that were stopped: how many rounds until the next try, and how many they waited last time. */
  readonly #waits = new Map<string, { rounds: number; readonly waited: number }>();
  /** The settlements that the spill journal had at the start are in the store, or cannot be written yet. */
  readonly begun: Promise<void>;
  readonly #running;

  constructor(
    ports: EffectPorts,
    people: People,
    spill: SpillJournal,
    everyMs: number,
    report: (error: unknown) => void,
  ) {
    this.#ports = ports;
    this.#people = people;
    this.#spill = spill;
    this.#everyMs = everyMs;
    this.#report = report;
    this.begun = this.#attempt(() => this.#spill.drain(this.#ports.store));
    this.#running = this.#run();
  }

  /** What the last round that came to its end left of old records; `null` before the first. */
  last(): Swept | null {
    return this.#last;
  }

  stop(): Promise<void> {
    this.#stopped.abort();
    return this.#running;
  }

  async #run(): Promise<void> {
    await this.begun;
    while (!this.#stopped.signal.aborted) {
      await this.#attempt(() => this.#sweep());
      await this.#attempt(() => this.#dispatchLeftOvers());
      await delay(this.#everyMs, undefined, { ref: false, signal: this.#stopped.signal }).catch(() => undefined);
      if (!this.#stopped.signal.aborted) await this.#attempt(() => this.#spill.drain(this.#ports.store));
    }
  }

  /** One part of a round. An error in it is logged, and the other parts still run. */
  async #attempt(part: () => Promise<unknown>): Promise<void> {
    try {
      await part();
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) this.#report(error);
    }
  }

  async #sweep(): Promise<void> {
    for (;;) {
      this.#last = { ...(await this.#ports.store.sweep(BATCH)), at: Date.now() };
      const { lost, approvalsExpired, aged } = this.#last;
      if (Math.max(lost, approvalsExpired, aged) < BATCH) break;
    }
  }

  async #dispatchLeftOvers(): Promise<void> {
    const granted = await this.#ports.store.grantedApprovals(MOST_GRANTED);
    const ids = new Set(granted.map(({ id }) => id));
    for (const id of this.#waits.keys()) if (!ids.has(id)) this.#waits.delete(id);
    const due = granted.filter((approval) => {
      // The vote that grants a call also dispatches it. A call that is granted for longer than this was left behind by
      // a dead gateway.
      const left = approval.decidedAt !== null && this.#ports.store.now() - approval.decidedAt > this.#everyMs * 2;
      return left && (this.#waits.get(approval.id)?.rounds ?? 0) <= 0;
    });
    for (const wait of this.#waits.values()) wait.rounds -= 1;
    const dispatching = due.slice(0, BATCH).map((approval) =>
      this.#attempt(async () => {
        const effect = await this.#ports.store.effect(approval.workspace, approval.effectId);
        if (effect?.life.state !== 'pending_approval') return;
        const became = await dispatchGranted(this.#ports, this.#people, approval, effect);
        if (became.kind !== 'stopped') return;
        const rounds = Math.min((this.#waits.get(approval.id)?.waited ?? 0) * 2 + 1, MOST_ROUNDS);
        this.#waits.set(approval.id, { rounds, waited: rounds });
      }),
    );
    await Promise.all(dispatching);
  }
}

/** What people have to know of what is swept, and of outcomes that nobody settles. */
export function retentionNotes(last: Swept | null, now: number): readonly Note[] {
  if (last === null) return [];
  const notes: Note[] = [];
  const note = (part: string, message: string): void => void notes.push({ part, message });
  const { unsettled, reached, oldestUnknown, archive, at } = last;
  const day = (time: number): string => new Date(time).toISOString();
  if (now - at >= STANDS_STILL_MS)
    note('retention', `Nothing has been ended or removed by age since ${day(at)}: the log says what stops it.`);
  if (archive !== null && archive.failure !== null)
    note('archive', `Effects older than retention.effects stay in the store: ${archive.failure}`);
  if (unsettled > 0) {
    const where = reached === null ? '' : ` The look for more has reached ${day(reached)}.`;
    note(
      'retention',
      `${unsettled} effects are older than retention.effects and stay, because what became of them is not known: svc effects resolve settles many at once.${where}`,
    );
  }
  if (oldestUnknown !== null && now - oldestUnknown >= LONG_UNKNOWN_MS)
    note(
      'unknown_outcomes',
      `What became of an effect of ${day(oldestUnknown)} is still not known: svc effects list --state unknown.`,
    );
  return notes;
}
