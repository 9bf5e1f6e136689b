import { expect, it } from 'vitest';
import { DEEP } from '../deep.ts';
import { type ProbingReport, tortureProbes } from './probing.ts';

const OPS = DEEP ? 2_000 : 100;
const KILLS = DEEP ? 20 : 2;

/** Runs in all, where the machine gets too little done for what is claimed of ten seconds. */
const MOST_RUNS = 3;

it.each(['embedded', 'redis'] as const)(
  `${OPS} calls whose answers are lost, reads that lag, fail and show pending first, ${KILLS} kills; %s: all is settled, in time, and nothing wrongly`,
  { timeout: DEEP ? 2_400_000 : 900_000 },
  async (stand) => {
    for (let run = 1; ; run += 1) {
      const seed = Math.floor(Math.random() * 2 ** 31);
      const report = await tortureProbes({ stand, ops: OPS, kills: KILLS, seed });
      console.log(JSON.stringify({ stand, seed, ...report }));
      // Whatever the machine does, nothing is wrong.
      expect(report).toMatchObject({ wrong: [], twice: [], unsettled: 0, differences: 0 });
      expect(report.kills).toBeGreaterThanOrEqual(KILLS);
      expect(report.happened).toBeGreaterThan(OPS / 5);
      expect(report.unknown - report.happened).toBeGreaterThan(OPS / 10);
      // One gateway probes an effect at a time.
      expect(report.atOnce).toBe(1);
      if (inTime(report)) return;
      expect(run, 'not in time').toBeLessThan(MOST_RUNS);
    }
  },
);

/** 99 of 100 of what happened, and of the rest. */
function inTime({ unknown, happened, happenedLate, restLate }: ProbingReport): boolean {
  return happenedLate.length <= happened / 100 && restLate.length <= (unknown - happened) / 100;
}
