import { describe, expect, it } from 'vitest';
import { torture, type TortureReport } from './harness.ts';

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

const NOTHING_BROKEN = {
  executedMoreThanOnce: 0,
  falseFailed: 0,
  falseCommitted: 0,
  stuck: 0,
  overspentUnits: 0,
  leakedHolds: 0,
};

async function run(stand: Parameters<typeof torture>[0]['stand'], ops: number, kills: number): Promise<TortureReport> {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const report = await torture({ stand, ops, kills, seed, concurrency: 16, faults: FAULTS });
  console.log(JSON.stringify({ stand, ...report }));
  return report;
}

describe('two gateways on Redis, 40 % faulty answers', () => {
  it('gateways killed and frozen, Redis killed: nothing twice, nothing false, nothing stuck', {
    timeout: 120_000,
  }, async () => {
    const report = await run('redis', 250, 10);
    expect(report).toMatchObject({ kills: 10, ...NOTHING_BROKEN });
    expect(report.committed).toBeGreaterThan(50);
    expect(report.unknown).toBeGreaterThan(5);
  });

  it('the primary killed, its replica 20 ms behind: nothing twice, and writes wait at most 5 s', {
    timeout: 120_000,
  }, async () => {
    const report = await run('redis-failover', 200, 2);
    expect(report).toMatchObject({ kills: 2, ...NOTHING_BROKEN });
    expect(report.longestPauseMs).toBeLessThan(5000);
    expect(report.committed).toBeGreaterThan(50);
  });
});
