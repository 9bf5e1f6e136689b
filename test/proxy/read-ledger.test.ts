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
