import { expect, it } from 'vitest';
import { BROKEN } from './harness.ts';
import { SHARE, tortureInShort } from './in-short.ts';

const OPS = 500 * SHARE;
const KILLS = Math.ceil(25 * SHARE);

it(`${OPS} keyed calls with duplicates, 40 % faulty answers, ${KILLS} kills: nothing twice, nothing false, nothing stuck`, {
  timeout: 480_000,
}, async () => {
  const report = await tortureInShort({ stand: 'embedded', ops: OPS, kills: KILLS });
  expect(report.kills).toBeGreaterThanOrEqual(KILLS);
  expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
  expect(report.committed).toBeGreaterThan(OPS / 5);
  expect(report.unknown).toBeGreaterThan(OPS / 50);
  expect(report.resolvedMeanwhile).toBeGreaterThan(OPS / 50);
  expect(report.denied).toBeGreaterThan(OPS / 100);
});
