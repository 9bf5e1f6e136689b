import type { EffectRecord, Stage } from '../model/effect.ts';

/** An attempt that this process runs. Its stages are put on record only at settlement. */
export interface RunningAttempt {
  readonly effect: Pick<EffectRecord, 'id' | 'attempt'>;
  /** Stages that have ended, in order. */
  readonly over: readonly Stage[];
  /** The stage that has begun and has not ended. */
  readonly now: { readonly stage: Stage['stage']; readonly startedAt: number } | null;
}

/**
 * The attempts that this process runs now. Places are used again: V8 keeps the tables that a `Map` with many deletions
 * has outgrown, with everything that was in them, until the next full collection. That would be every call.
 */
export class Running {
  readonly #places: (RunningAttempt | null)[] = [];
  readonly #free: number[] = [];

  /** @returns its place, for {@link end} */
  begin(attempt: RunningAttempt): number {
    const place = this.#free.pop() ?? this.#places.length;
    this.#places[place] = attempt;
    return place;
  }

  end(place: number): void {
    this.#places[place] = null;
    this.#free.push(place);
  }

  /** The newest attempt of an effect; `null` where another gateway runs it, or none does. */
  stagesOf(effectId: string): RunningAttempt | null {
    let newest: RunningAttempt | null = null;
    for (const each of this.#places)
      if (each?.effect.id === effectId && each.effect.attempt > (newest?.effect.attempt ?? 0)) newest = each;
    return newest;
  }
}
