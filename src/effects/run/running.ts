import type { Stage } from '../model/effect.ts';

/** An attempt that this process runs. Its stages are put on record only at settlement. */
export interface RunningAttempt {
  readonly effectId: string;
  /** Stages that have ended, in order. */
  readonly over: readonly Stage[];
  /** The stage that has begun and has not ended. */
  readonly now: { readonly stage: Stage['stage']; readonly startedAt: number } | null;
}

/** The attempts that this process runs now. It costs one map entry per attempt. */
export class Running {
  readonly #attempts = new Map<string, RunningAttempt>();

  begin(attempt: RunningAttempt): void {
    this.#attempts.set(attempt.effectId, attempt);
  }

  end(attempt: RunningAttempt): void {
    // A later attempt of the same effect must stay.
    if (this.#attempts.get(attempt.effectId) === attempt) this.#attempts.delete(attempt.effectId);
  }

  /** `null` where another gateway runs it, or none does. */
  stagesOf(effectId: string): RunningAttempt | null {
    return this.#attempts.get(effectId) ?? null;
  }
}
