import type { Stage } from '../model/effect.ts';

/** A stage that has begun and is not over. */
export interface RunningStage {
  readonly stage: Stage['stage'];
  readonly startedAt: number;
}

/** Attempts that this process runs now, with the stages that are not on record before they are settled. */
export interface Running {
  begin(effectId: string): RunningAttempt;
  /** `null` where another gateway runs it, or nobody does. */
  stagesOf(effectId: string): { readonly over: readonly Stage[]; readonly now: RunningStage | null } | null;
}

export interface RunningAttempt {
  /** Stages that are over, in order. */
  readonly over: Stage[];
  now: RunningStage | null;
  end(): void;
}

/** Notes what runs. Costs an attempt one entry of a map. */
export function createRunning(): Running {
  const attempts = new Map<string, RunningAttempt>();
  return {
    begin(effectId) {
      const attempt: RunningAttempt = {
        over: [],
        now: null,
        end: () => {
          // A later attempt of the same effect stays.
          if (attempts.get(effectId) === attempt) attempts.delete(effectId);
        },
      };
      attempts.set(effectId, attempt);
      return attempt;
    },
    stagesOf: (effectId) => attempts.get(effectId) ?? null,
  };
}
