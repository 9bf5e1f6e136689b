import type { EffectRecord, EffectState } from '../effects/model/effect.ts';

const FIRST_CHECK_MS = 25;
const SLOWEST_CHECK_MS = 500;
/** Callers that wait at once. Each holds a connection, and the store is read twice a second for the effect of each. */
const MOST_WAITS = 64;
/** Of these, callers of one agent: its calls that wait for people leave room for others. */
const MOST_OF_ONE = 16;

export interface EffectWatch {
  /**
   * Resolves with `true` when the effect is in none of these states any more, and with `false` when the time ends
   * first, the caller has gone, or the gateway stops.
   * @param of whose caller it is
   * @returns `null` where too many wait already
   */
  left(
    states: readonly EffectState[],
    effect: { readonly workspace: string; readonly effectId: string },
    of: string,
    waitMs: number,
    gone: AbortSignal,
  ): Promise<boolean> | null;
  /** Ends every wait, and lets none begin. */
  end(): void;
}

/** Waits for effects on behalf of many callers. Callers that wait for the same effect share one series of reads. */
export function createEffectWatch(read: (workspace: string, id: string) => Promise<EffectRecord | null>): EffectWatch {
  const waiting = new Map<string, Set<(left: boolean) => void>>();
  let waits = 0;
  const waitsOf = new Map<string, number>();
  let isOver = false;

  /** Reads until all who wait have gone. Who comes after that begins a series of his own. */
  const check = async (
    waiters: ReadonlySet<(left: boolean) => void>,
    hasLeft: () => Promise<boolean>,
    delayMs: number,
  ): Promise<void> => {
    if (waiters.size === 0) return;
    // If the store cannot be read, try again later: the waiters have their own time limit.
    if (await hasLeft().catch(() => false)) for (const wake of waiters) wake(true);
    else setTimeout(() => void check(waiters, hasLeft, Math.min(delayMs * 2, SLOWEST_CHECK_MS)), delayMs).unref();
  };

  return {
    left(states, { workspace, effectId }, of, waitMs, gone) {
      const key = JSON.stringify([workspace, effectId, states]);
      const known = waiting.get(key);
      const own = waitsOf.get(of) ?? 0;
      if (isOver || gone.aborted || waits >= MOST_WAITS || own >= MOST_OF_ONE) return null;
      waits += 1;
      waitsOf.set(of, own + 1);
      return new Promise((resolve) => {
        const waiters = known ?? new Set();
        const end = (): void => wake(false);
        const timer = setTimeout(end, waitMs);
        const wake = (left: boolean): void => {
          clearTimeout(timer);
          gone.removeEventListener('abort', end);
          waiters.delete(wake);
          waits -= 1;
          const others = (waitsOf.get(of) ?? 1) - 1;
          if (others === 0) waitsOf.delete(of);
          else waitsOf.set(of, others);
          if (waiters.size === 0 && waiting.get(key) === waiters) waiting.delete(key);
          resolve(left);
        };
        gone.addEventListener('abort', end);
        waiters.add(wake);
        if (known !== undefined) return;
        waiting.set(key, waiters);
        const hasLeft = async (): Promise<boolean> => {
          const effect = await read(workspace, effectId);
          return effect === null || !states.includes(effect.life.state);
        };
        void check(waiters, hasLeft, FIRST_CHECK_MS);
      });
    },
    end() {
      isOver = true;
      for (const waiters of waiting.values()) for (const wake of waiters) wake(false);
    },
  };
}
