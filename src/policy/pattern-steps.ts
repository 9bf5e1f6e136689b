/**
 * Steps that all patterns of policy may take on one call together: the size of a compiled pattern (for an address: 4)
 * times the length of its text. Matching is linear, and this bounds its factor: a list may hold thousands of texts, and many rules may ask.
 */
export const PATTERN_STEPS = 1_000_000;

let left = Number.POSITIVE_INFINITY;

/** Evaluates one call under the bound. Synchronous, so that one count serves all calls, one after the other. */
export function withPatternSteps<T>(evaluate: () => T): T {
  left = PATTERN_STEPS;
  try {
    return evaluate();
  } finally {
    left = Number.POSITIVE_INFINITY;
  }
}

/** Takes steps. @returns whether there were enough; a leaf that has none left is unknown */
export function takePatternSteps(steps: number): boolean {
  left -= steps;
  return left >= 0;
}
