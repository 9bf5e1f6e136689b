import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { failing, type PowerBench, preparePower, SEED, TWICE } from './power/bench.ts';
import { cutPower, type PowerReport } from './power/check.ts';
import type { Run } from './power/record.ts';

/** Recordings, and cuts in each: in short form one; `npm run torture -- --power` asks for more. */
const CUTS = 40;
const ROUNDS = Array.from({ length: Number(process.env['SVC_POWER_ROUNDS'] ?? 1) }, (_, round) => round);

let bench: PowerBench;
beforeAll(() => {
  bench = preparePower();
});
afterAll(() => bench.store.remove());

function cut(runs: readonly Run[], seed: number): Promise<PowerReport> {
  const { log, root } = bench.recorded(runs);
  return cutPower(log, root, CUTS, seed);
}

function expectWhole(report: PowerReport): void {
  if (ROUNDS.length > 1) console.log(JSON.stringify(report));
  expect(report).toMatchObject({ cuts: CUTS, broken: 0, faults: [] });
  expect(report.keysAskedAgain).toBeGreaterThan(1000);
  expect(report.stepsLookedFor).toBeGreaterThan(100);
}

describe('a power cut at any moment', () => {
  it.each(ROUNDS)('loses nothing that somebody was told, also after a process was killed (%i)', async (round) => {
    expectWhole(await cut(TWICE, SEED + round));
  });

  it.each(ROUNDS)('nor after a sync has failed: the next start writes the journal anew (%i)', async (round) => {
    expectWhole(await cut(failing(40 + 7 * round), SEED + round));
  });
});
