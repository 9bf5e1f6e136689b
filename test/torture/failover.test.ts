import { expect, it } from 'vitest';
import { BROKEN } from './harness.ts';
import { tortureInShort } from './in-short.ts';

/** The longest that nothing may be written when the primary is lost, ms. */
const WRITE_PAUSE_MS = 5000;

it('the primary killed, its replicas 20 ms behind: nothing twice, and writes wait at most 5 s each time', {
  timeout: 300_000,
}, async () => {
  const report = await tortureInShort({ stand: 'redis-failover', ops: 300, kills: 3 });
  expect(report.kills).toBeGreaterThanOrEqual(3);
  expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
  expect(report.committed).toBeGreaterThan(50);
  // The longest of all kills: not one may wait longer.
  expect(report.longestPauseMs ?? Number.POSITIVE_INFINITY).toBeLessThan(WRITE_PAUSE_MS);
});
