import { afterEach, expect, it, vi } from 'vitest';
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

afterEach(() => vi.useRealTimers());

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

it('a batch is written after a second, or at once where it has five hundred entries', async () => {
  vi.useFakeTimers();
  const written: LedgerDraft[] = [];
  const ledger = createReadLedger(
    async (_workspace, events) => void written.push(...events),
    () => 1_750_000_000_000,
  );
  ledger.record(READ, 200);
  await vi.advanceTimersByTimeAsync(999);
  expect(written).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  const plain = {
    tool: 'orders.get',
    upstream: 'shop',
    key_id: 'key_1',
    rule: 'shop/read',
    policy_version: 'v1',
    count: 1,
    first_at: '2025-06-15T15:06:40.000Z',
    last_at: '2025-06-15T15:06:40.000Z',
    statuses: { 200: 1 },
  };
  expect(written).toEqual([{ kind: 'read.batch', effectId: null, actor: { type: 'agent', id: 'bot' }, data: plain }]);
  const observed = { would: 'denied_policy', rule: 'shop/no', example: 'GET /orders' } as const;
  ledger.record({ ...READ, observed }, 403);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(written[1]?.data).toEqual({
    ...plain,
    observed: 'denied_policy',
    observed_by: 'shop/no',
    example: 'GET /orders',
    statuses: { 403: 1 },
  });
  for (let each = 0; each < 499; each += 1) ledger.record({ ...READ, tool: `t${each}` }, 200);
  await vi.advanceTimersByTimeAsync(0);
  expect(written).toHaveLength(2);
  ledger.record({ ...READ, tool: 'one more' }, 200);
  await vi.advanceTimersByTimeAsync(0);
  expect(written).toHaveLength(502);
  await ledger.close();
  expect(vi.getTimerCount()).toBe(0);
});

it('what could not be written is tried each second by itself, in its own workspace and with its first and last time', async () => {
  vi.useFakeTimers();
  const written: (readonly [string, LedgerDraft])[] = [];
  let isAway = true;
  let time = 1_750_000_000_000;
  const ledger = createReadLedger(
    async (workspace, events) => {
      if (isAway && workspace === 'demo') throw new Error('the store is away');
      written.push(...events.map((event) => [workspace, event] as const));
    },
    () => time,
  );
  ledger.record(READ, 200);
  ledger.record({ ...READ, workspace: 'elsewhere' }, 200);
  time += 2_000;
  ledger.record(READ, 200);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(written.map(([workspace]) => workspace)).toEqual(['elsewhere']);
  await vi.advanceTimersByTimeAsync(1_000);
  isAway = false;
  await vi.advanceTimersByTimeAsync(1_000);
  expect(written.map(([workspace]) => workspace)).toEqual(['elsewhere', 'demo']);
  expect(written[1]?.[1].data).toMatchObject({
    count: 2,
    first_at: '2025-06-15T15:06:40.000Z',
    last_at: '2025-06-15T15:06:42.000Z',
    statuses: { 200: 2 },
  });
  await vi.advanceTimersByTimeAsync(5_000);
  expect(written).toHaveLength(2);
  await ledger.close();
});
