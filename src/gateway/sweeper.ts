import { dispatchGranted } from '../effects/run/decide-approval.ts';
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

/** A round that came to its end. */
export interface Swept extends SweepReport {
  /** When it did, by the machine's clock, ms. */
  readonly at: number;
}

/** After so long without a round that came to its end, people are told. */
const STANDS_STILL_MS = 10 * 60_000;

/** An outcome that nobody has settled for so long is told of. */
const LONG_UNKNOWN_MS = 60 * 60_000;

/** What the gateway does regularly without being asked. */
export interface Sweeper {
  /** The settlements that the spill journal had at the start are in the store, or cannot be written yet. */
  readonly begun: Promise<void>;
  /** What the last round that came to its end left of old records; `null` before the first. */
  last(): Swept | null;
  stop(): Promise<void>;
}

/**
 * Writes spilled settlements into the store, declares what has ended, and dispatches approved calls that a dead gateway
 * left behind. One round at a time; the next starts `everyMs` after the last one ended.
 */
export function startSweeper(
  ports: EffectPorts,
  people: People,
  spill: SpillJournal,
  everyMs: number,
  report: (error: unknown) => void,
): Sweeper {
  let stopped = false;
  let last: Swept | null = null;
  let wake: () => void = () => undefined;
  /** Granted calls that were stopped: how many rounds until the next try, and how many they waited last time. */
  const waits = new Map<string, { rounds: number; readonly waited: number }>();

  /** One part of a round. An error in it is logged, and the other parts still run. */
  async function attempt(part: () => Promise<unknown>): Promise<void> {
    try {
      await part();
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) report(error);
    }
  }

  async function sweep(): Promise<void> {
    for (;;) {
      last = { ...(await ports.store.sweep(BATCH)), at: Date.now() };
      const { lost, approvalsExpired, aged } = last;
      if (Math.max(lost, approvalsExpired, aged) < BATCH) break;
    }
  }

  async function dispatchLeftOvers(): Promise<void> {
    const granted = await ports.store.grantedApprovals(MOST_GRANTED);
    const ids = new Set(granted.map(({ id }) => id));
    for (const id of waits.keys()) if (!ids.has(id)) waits.delete(id);
    const due = granted.filter((approval) => {
      // The vote that grants a call also dispatches it. A call that is granted for longer than this was left behind by
      // a dead gateway.
      const left = approval.decidedAt !== null && ports.store.now() - approval.decidedAt > everyMs * 2;
      return left && (waits.get(approval.id)?.rounds ?? 0) <= 0;
    });
    for (const wait of waits.values()) wait.rounds -= 1;
    const dispatching = due.slice(0, BATCH).map((approval) =>
      attempt(async () => {
        const effect = await ports.store.effect(approval.workspace, approval.effectId);
        if (effect?.life.state !== 'pending_approval') return;
        const became = await dispatchGranted(ports, people, approval, effect);
        if (became.kind !== 'stopped') return;
        const rounds = Math.min((waits.get(approval.id)?.waited ?? 0) * 2 + 1, MOST_ROUNDS);
        waits.set(approval.id, { rounds, waited: rounds });
      }),
    );
    await Promise.all(dispatching);
  }

  const begun = attempt(() => spill.drain(ports.store));
  const running = (async () => {
    await begun;
    while (!stopped) {
      await attempt(sweep);
      await attempt(dispatchLeftOvers);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, everyMs);
        timer.unref();
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
        if (stopped) wake();
      });
      if (!stopped) await attempt(() => spill.drain(ports.store));
    }
  })();

  return {
    begun,
    last: () => last,
    stop() {
      stopped = true;
      wake();
      return running;
    },
  };
}

/** What people have to know of what is swept, and of outcomes that nobody settles. */
export function retentionNotes(
  last: Swept | null,
  now: number,
): readonly { readonly part: string; readonly message: string }[] {
  if (last === null) return [];
  const notes: { readonly part: string; readonly message: string }[] = [];
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
