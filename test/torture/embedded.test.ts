import { expect, it } from 'vitest';
import { BROKEN, torture } from './harness.ts';

it('500 keyed calls with duplicates, 40 % faulty answers, 25 kills: nothing twice, nothing false, nothing stuck', {
  timeout: 480_000,
}, async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const report = await torture({
    stand: 'embedded',
    ops: 500,
    kills: 25,
    seed,
    concurrency: 16,
    tell: (line) => console.log(line),
  });
  console.log(JSON.stringify(report));
  expect(report.kills).toBeGreaterThanOrEqual(25);
  expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
  expect(report.committed).toBeGreaterThan(100);
  expect(report.unknown).toBeGreaterThan(10);
  expect(report.resolvedMeanwhile).toBeGreaterThan(10);
  expect(report.denied).toBeGreaterThan(5);
});
