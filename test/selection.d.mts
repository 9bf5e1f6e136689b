/** Patterns of the test files that a run of `run.mjs` leaves out; `undefined`: not one of its runs. */
export function leftOut(run: string | undefined): string[];
