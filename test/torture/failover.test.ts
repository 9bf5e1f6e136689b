import { expect, it } from 'vitest';
import { shortest } from '../shortest.ts';
import { BROKEN, torture } from './harness.ts';

/** The longest that nothing may be written when the primary is lost, ms. */
const WRITE_PAUSE_MS = 5000;

it('the primary killed, its replicas 20 ms behind: nothing twice, and writes wait at most 5 s', {
  timeout: 300_000,
}, async () => {
  const pause = await shortest(WRITE_PAUSE_MS, async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const settings = { stand: 'redis-failover', ops: 200, kills: 2, seed, concurrency: 16 } as const;
    const report = await torture({ ...settings, tell: (line) => console.log(line) });
    console.log(JSON.stringify({ stand: settings.stand, ...report }));
    expect(report.kills).toBeGreaterThanOrEqual(2);
    expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
    expect(report.committed).toBeGreaterThan(50);
    return report.longestPauseMs ?? Number.POSITIVE_INFINITY;
  });
  expect(pause).toBeLessThan(WRITE_PAUSE_MS);
});
