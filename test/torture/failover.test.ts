import { expect, it } from 'vitest';
import { shortest } from '../shortest.ts';
import { BROKEN } from './harness.ts';
import { tortureInShort } from './in-short.ts';

/** The longest that nothing may be written when the primary is lost, ms. */
const WRITE_PAUSE_MS = 5000;

it('the primary killed, its replicas 20 ms behind: nothing twice, and writes wait at most 5 s', {
  timeout: 300_000,
}, async () => {
  const pause = await shortest(WRITE_PAUSE_MS, async () => {
    const report = await tortureInShort({ stand: 'redis-failover', ops: 200, kills: 2 });
    expect(report.kills).toBeGreaterThanOrEqual(2);
    expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
    expect(report.committed).toBeGreaterThan(50);
    return report.longestPauseMs ?? Number.POSITIVE_INFINITY;
  });
  expect(pause).toBeLessThan(WRITE_PAUSE_MS);
});
