import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { LedgerUpstream } from '../upstream/start.ts';
import { concluded, torture, type TortureReport } from './harness.ts';

/** A run without troubles, but for what happens to the upstream. */
function runWith(beside: (upstream: LedgerUpstream) => Promise<void>): Promise<TortureReport> {
  return torture({ stand: 'embedded', ops: 80, kills: 0, seed: 20_261_122, concurrency: 16, beside });
}

async function begun({ counts }: LedgerUpstream): Promise<void> {
  while ((await counts()).effects < 10) await pause(5);
}

it('an upstream that is stopped for 3 s has broken what is declared of it: no verdict', async () => {
  const report = await runWith(async (upstream) => {
    await begun(upstream);
    process.kill(upstream.pid, 'SIGSTOP');
    await pause(3000);
    process.kill(upstream.pid, 'SIGCONT');
  });
  expect(report.upstreamLateMs).toBeGreaterThan(2000);
  expect(concluded(report)).toEqual({
    kind: 'no_verdict',
    why: expect.stringMatching(/^no verdict: upstream was \d+ ms late/),
  });
});

it('what is done twice by an upstream that is in time is broken', async () => {
  const report = await runWith((upstream) => upstream.mode({ mode: 'twice', times: 3 }));
  expect(report.executedMoreThanOnce).toBeGreaterThan(0);
  expect(concluded(report)).toMatchObject({ kind: 'broken', what: expect.arrayContaining(['executedMoreThanOnce']) });
});
