/**
 * Most steps that all policy patterns together may use in one call. A match uses the size of the compiled pattern (for
 * an address: 4) times the length of the text. Matching is linear, but a list can hold thousands of texts, and many
 * rules can ask. This bounds the total.
 */
export const PATTERN_STEPS = 1_000_000;

let left = Number.POSITIVE_INFINITY;

/** Evaluates one call with this bound. It is synchronous, so one counter is enough for all calls. */
export function withPatternSteps<T>(evaluate: () => T, most = PATTERN_STEPS): T {
  left = most;
  try {
    return evaluate();
  } finally {
    left = Number.POSITIVE_INFINITY;
  }
}

/** Uses up steps. @returns whether enough were left; otherwise the leaf is unknown */
export function takePatternSteps(steps: number): boolean {
  left -= steps;
  return left >= 0;
}

/** What is left of the bound; below 0 once a leaf was not evaluated because of it. */
export function patternStepsLeft(): number {
  return left;
}
