import { dispatchGranted, type People } from '../effects/run/decide-approval.ts';
import type { EffectPorts } from '../effects/ports.ts';
import { StoreUnavailable } from '../effects/store.ts';
import type { SpillJournal } from '../stores/journal/spill.ts';

/** Rows of each kind that one round declares. */
const BATCH = 100;

/** Granted calls looked at in one round; and most rounds that a call waits which is stopped again and again. */
const MOST_GRANTED = 1000;
const MOST_ROUNDS = 7;

/** What the gateway does by itself, over and over. */
export interface Sweeper {
  /** What the journal beside the store held at the start has been handed to the store, or cannot be yet. */
  readonly begun: Promise<void>;
  stop(): Promise<void>;
}

/**
 * Drives spilled settlements in, declares what is over, and dispatches what was approved while a gateway died.
 * One round at a time; the next begins `everyMs` after the last ended.
 */
export function startSweeper(
  ports: EffectPorts,
  people: People,
  spill: SpillJournal,
  everyMs: number,
  report: (error: unknown) => void,
): Sweeper {
  let stopped = false;
  let wake: () => void = () => undefined;
  /** Granted calls that were stopped: rounds until they are tried again, and how many they waited last. */
  const waits = new Map<string, { rounds: number; readonly waited: number }>();

  /** One part of a round. An error in it is logged, and the other parts run all the same. */
  async function attempt(part: () => Promise<unknown>): Promise<void> {
    try {
      await part();
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) report(error);
    }
  }

  async function sweep(): Promise<void> {
    for (;;) {
      const { lost, approvalsExpired, aged } = await ports.store.sweep(BATCH);
      if (Math.max(lost, approvalsExpired, aged) < BATCH) break;
    }
  }

  async function dispatchLeftBehind(): Promise<void> {
    const granted = await ports.store.grantedApprovals(MOST_GRANTED);
    const ids = new Set(granted.map(({ id }) => id));
    for (const id of waits.keys()) if (!ids.has(id)) waits.delete(id);
    const due = granted.filter((approval) => {
      // The vote that grants a call dispatches it. What is older than that was left behind by a gateway that died.
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
      await attempt(dispatchLeftBehind);
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
    stop() {
      stopped = true;
      wake();
      return running;
    },
  };
}
