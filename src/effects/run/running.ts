import type { Stage } from '../model/effect.ts';

/** A stage that has begun and has not ended. */
export interface RunningStage {
  readonly stage: Stage['stage'];
  readonly startedAt: number;
}

/** The attempts that this process runs now, with their stages. Stages are put on record only at settlement. */
export interface Running {
  begin(effectId: string): RunningAttempt;
  /** `null` where another gateway runs it, or none does. */
  stagesOf(effectId: string): { readonly over: readonly Stage[]; readonly now: RunningStage | null } | null;
}

export interface RunningAttempt {
  /** Stages that have ended, in order. */
  readonly over: Stage[];
  now: RunningStage | null;
  end(): void;
}

/** Keeps track of running attempts. It costs one map entry per attempt. */
export function createRunning(): Running {
  const attempts = new Map<string, RunningAttempt>();
  return {
    begin(effectId) {
      const attempt: RunningAttempt = {
        over: [],
        now: null,
        end: () => {
          // A later attempt of the same effect must stay.
          if (attempts.get(effectId) === attempt) attempts.delete(effectId);
        },
      };
      attempts.set(effectId, attempt);
      return attempt;
    },
    stagesOf: (effectId) => attempts.get(effectId) ?? null,
  };
}
