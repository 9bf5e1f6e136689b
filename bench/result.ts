import type { CpuShares } from './cpu.ts';
import type { StageCost } from './stages.ts';

/** One figure of a benchmark; `ratio` is against the peer measured in the same run. */
export interface BenchResult {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly peer: string | null;
  readonly ratio: number | null;
  /** What the figure (or the ratio, where there is one) has to reach, e.g. `>= 0.5`. */
  readonly target: string | null;
  /** CPU µs a call by process and thread, of each of those compared. */
  readonly cpu?: Readonly<Record<string, CpuShares>>;
  /** What the stages of a call take of the main thread, beside what they may. */
  readonly stages?: readonly StageCost[];
}

export interface BenchOptions {
  /** How many effects the benchmarks of many effects store; each has its own most. */
  readonly effects: number;
}
