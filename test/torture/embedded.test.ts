import { expect, it } from 'vitest';
import { BROKEN } from './harness.ts';
import { tortureInShort } from './in-short.ts';

it('500 keyed calls with duplicates, 40 % faulty answers, 25 kills: nothing twice, nothing false, nothing stuck', {
  timeout: 480_000,
}, async () => {
  const report = await tortureInShort({ stand: 'embedded', ops: 500, kills: 25 });
  expect(report.kills).toBeGreaterThanOrEqual(25);
  expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
  expect(report.committed).toBeGreaterThan(100);
  expect(report.unknown).toBeGreaterThan(10);
  expect(report.resolvedMeanwhile).toBeGreaterThan(10);
  expect(report.denied).toBeGreaterThan(5);
});
