import { describe, expect, it } from 'vitest';
import { BROKEN, torture, type TortureReport } from './harness.ts';

async function run(stand: 'redis' | 'redis-failover', ops: number, kills: number): Promise<TortureReport> {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const report = await torture({ stand, ops, kills, seed, concurrency: 16, tell: (line) => console.log(line) });
  console.log(JSON.stringify({ stand, ...report }));
  expect(report.kills).toBeGreaterThanOrEqual(kills);
  expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
  return report;
}

describe('two gateways on Redis, 40 % faulty answers', () => {
  it('gateways and Redis killed, frozen and without room, clocks that jump: nothing twice, nothing false, nothing stuck', {
    timeout: 120_000,
  }, async () => {
    const report = await run('redis', 400, 10);
    expect(report.committed).toBeGreaterThan(50);
    expect(report.unknown).toBeGreaterThan(5);
  });

  it('the primary killed, its replicas 20 ms behind: nothing twice, and writes wait at most 5 s', {
    timeout: 120_000,
  }, async () => {
    const report = await run('redis-failover', 200, 2);
    expect(report.longestPauseMs).toBeLessThan(5000);
    expect(report.committed).toBeGreaterThan(50);
  });
});
