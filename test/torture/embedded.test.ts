import { expect, it } from 'vitest';
import { torture } from './harness.ts';

const FAULTS = {
  drop_after: 0.08,
  error_after: 0.08,
  late: 0.06,
  unavailable: 0.06,
  reset_reused: 0.04,
  half: 0.04,
  redirect: 0.02,
  drop_before: 0.02,
};

it('500 keyed calls with duplicates, 40 % faulty answers, 25 kills: nothing twice, nothing false, nothing stuck', {
  timeout: 240_000,
}, async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const report = await torture({ stand: 'embedded', ops: 500, kills: 25, seed, concurrency: 16, faults: FAULTS });
  console.log(JSON.stringify(report));
  expect(report).toMatchObject({
    kills: 25,
    executedMoreThanOnce: 0,
    falseFailed: 0,
    falseCommitted: 0,
    stuck: 0,
    overspentUnits: 0,
    leakedHolds: 0,
  });
  expect(report.committed).toBeGreaterThan(100);
  expect(report.unknown).toBeGreaterThan(10);
});
