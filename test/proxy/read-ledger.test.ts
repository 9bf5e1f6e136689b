import { expect, it } from 'vitest';
import type { LedgerDraft } from '../../src/effects/model/ledger.ts';
import { createReadLedger, type PassedRead } from '../../src/proxy/read-ledger.ts';

const READ: PassedRead = {
  workspace: 'demo',
  agentId: 'bot',
  keyId: 'key_1',
  tool: 'orders.get',
  upstream: 'shop',
  rule: 'shop/read',
  policyVersion: 'v1',
  observed: null,
};

it('reads of a time in which the store was away stand in the ledger when it is back', async () => {
  const written: LedgerDraft[] = [];
  let isAway = true;
  let time = 1_750_000_000_000;
  const ledger = createReadLedger(
    async (_workspace, events) => {
      if (isAway) throw new Error('the store is away');
      written.push(...events);
    },
    () => time,
  );
  ledger.record(READ, 200);
  ledger.record(READ, 404);
  await ledger.flush();
  isAway = false;
  time += 5_000;
  ledger.record(READ, null);
  await ledger.close();
  expect(written.map(({ data }) => data)).toMatchObject([
    {
      count: 3,
      first_at: '2025-06-15T15:06:40.000Z',
      last_at: '2025-06-15T15:06:45.000Z',
      statuses: { 200: 1, 404: 1, none: 1 },
    },
  ]);
});

it('while the store is away so many entries wait; what comes beyond is counted in the first of its key', async () => {
  const written: LedgerDraft[] = [];
  let isAway = true;
  const ledger = createReadLedger(
    async (_workspace, events) => {
      if (isAway) throw new Error('the store is away');
      written.push(...events);
    },
    () => 1_750_000_000_000,
  );
  const most = 10_000;
  ledger.record({ ...READ, keyId: 'key_2', tool: 'orders.first' }, 200);
  for (let each = 0; each < most + 500; each += 1) ledger.record({ ...READ, keyId: 'key_2', tool: `t${each}` }, 200);
  isAway = false;
  await ledger.close();
  const counts = written.map(({ data }) => [data['tool'], data['count']]);
  expect(counts).toHaveLength(most);
  expect(counts[0]).toEqual(['orders.first', 502]);
  expect(counts.reduce((sum, [, count]) => sum + Number(count), 0)).toBe(most + 501);
});

it('reads are added up where nothing of them differs', async () => {
  const written: (readonly [workspace: string, events: readonly LedgerDraft[]])[] = [];
  const ledger = createReadLedger(
    async (workspace, events) => void written.push([workspace, events]),
    () => 1_750_000_000_000,
  );
  const observed = { would: 'denied_policy', rule: 'shop/no', example: 'GET /orders' } as const;
  const others: readonly Partial<PassedRead>[] = [
    { tool: 'orders.list' },
    { rule: null },
    { agentId: 'other-bot' },
    { keyId: 'key_2' },
    { upstream: 'store' },
    { policyVersion: 'v2' },
    { observed },
    { observed: { ...observed, would: 'pending_approval' } },
    { observed: { ...observed, rule: 'shop/never' } },
    { workspace: 'elsewhere' },
  ];
  for (let times = 0; times < 2; times += 1)
    for (const other of [{}, ...others]) ledger.record({ ...READ, ...other }, 200);
  await ledger.close();
  expect(written.map(([workspace, events]) => [workspace, events.map(({ data }) => data['count'])])).toEqual([
    ['demo', Array.from(others, () => 2)],
    ['elsewhere', [2]],
  ]);
});
