import { expect, it } from 'vitest';
import { tortureInShort } from './in-short.ts';

/** The same harness must see what it is there for: with an idempotency library in the gateway's place it does. */
it.each(['node-idempotency', 'powertools'] as const)(
  'a gateway around %s: the harness finds double executions or false failures',
  { timeout: 240_000 },
  async (stand) => {
    const report = await tortureInShort({ stand, ops: 150, kills: 5 });
    expect(report.kills).toBe(5);
    expect(report.committed).toBeGreaterThan(20);
    expect(report.executedMoreThanOnce + report.falseFailed).toBeGreaterThan(0);
  },
);
