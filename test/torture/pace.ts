/**
 * How far the calls of a run may get: no further than its troubles. Otherwise those that come late find nobody who
 * calls. Between one trouble and the next the calls of that stretch begin evenly, as long as troubles mostly last.
 */
export interface Pace {
  /** Whether one more call may begin, after so many. */
  mayBegin(begun: number): boolean;
  /** A trouble begins; the one after it waits for `next` calls, `null` where there is none. */
  begins(next: number | null): void;
  ended(): void;
}

/** What a trouble is taken to last until one has been seen, ms. */
const FIRST_GUESS_MS = 1500;

/** @param first calls that the first trouble waits for; @param ahead calls that are under way at once */
export function createPace(first: number, ahead: number): Pace {
  let from = first;
  let to: number = first;
  let begunAt: number | null = null;
  let usual = FIRST_GUESS_MS;

  const share = (): number => (begunAt === null ? 1 : Math.min(1, (performance.now() - begunAt) / usual));
  return {
    mayBegin: (begun) => begun < from + (to - from) * share() + ahead,
    begins(next) {
      from = to;
      to = next ?? Infinity;
      begunAt = to === Infinity ? null : performance.now();
    },
    ended() {
      if (begunAt !== null) usual += (performance.now() - begunAt - usual) / 4;
      begunAt = null;
    },
  };
}
