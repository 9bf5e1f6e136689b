import type { EffectRecord } from '../effects/model/effect.ts';

const FIRST_CHECK_MS = 25;
const SLOWEST_CHECK_MS = 500;

export interface EffectWatch {
  /** Resolves with `true` when the effect is no longer executing, or with `false` when the time ends first. */
  settled(workspace: string, id: string, waitMs: number): Promise<boolean>;
}

/** Waits for effects on behalf of many callers. Callers that wait for the same effect share one series of reads. */
export function createEffectWatch(read: (workspace: string, id: string) => Promise<EffectRecord | null>): EffectWatch {
  const waiting = new Map<string, Set<(settled: boolean) => void>>();

  const check = async (workspace: string, id: string, key: string, delayMs: number): Promise<void> => {
    const waiters = waiting.get(key);
    if (waiters === undefined) return;
    // If the store cannot be read, try again later: the waiters have their own time limit.
    const effect = await read(workspace, id).catch(() => undefined);
    if (effect !== undefined && effect?.life.state !== 'executing') {
      waiting.delete(key);
      for (const wake of waiters) wake(true);
      return;
    }
    setTimeout(() => void check(workspace, id, key, Math.min(delayMs * 2, SLOWEST_CHECK_MS)), delayMs).unref();
  };

  return {
    settled(workspace, id, waitMs) {
      const key = `${workspace}/${id}`;
      return new Promise((resolve) => {
        const known = waiting.get(key);
        const waiters = known ?? new Set();
        const timer = setTimeout(() => wake(false), waitMs);
        const wake = (settled: boolean): void => {
          clearTimeout(timer);
          waiters.delete(wake);
          if (waiters.size === 0 && waiting.get(key) === waiters) waiting.delete(key);
          resolve(settled);
        };
        waiters.add(wake);
        if (known !== undefined) return;
        waiting.set(key, waiters);
        void check(workspace, id, key, FIRST_CHECK_MS);
      });
    },
  };
}
