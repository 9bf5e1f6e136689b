import { expect, it } from 'vitest';
import type { BudgetRow } from '../../src/effects/model/budget.ts';
import { NOTIFICATION_EVENTS, type Receiver } from '../../src/effects/model/notification.ts';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { createObserved } from '../../src/notifications/observed.ts';

const OPS: Receiver = {
  id: 'ops',
  name: 'ops',
  events: NOTIFICATION_EVENTS,
  workspaces: null,
  retryFirstMs: 1000,
  retryForMs: 1000,
  format: 'slack',
  url: 'http://127.0.0.1/',
  secrets: [],
  network: 'any',
};

it('budgets by params are judged in turns, as lists are, and so many are told of in one look', async () => {
  const row = (n: number): BudgetRow => ({
    budget: 'b',
    unit: 'cent',
    bucket: `customer ${n}`,
    window: 'd:2000',
    limit: 100,
    spent: n < 2_500 ? 95 : 5,
    held: 0,
    resetsAt: 2_000_000,
  });
  const rows = Array.from({ length: 3_000 }, (_, n) => row(n));
  const turns = createReadingTurns();
  let inTurns = 0;
  const told: string[] = [];
  const observed = createObserved({
    store: {
      now: () => 1_000_000,
      turns: {
        ...turns,
        map(items, make) {
          inTurns += items.length;
          return turns.map(items, make);
        },
      },
      budgets: async () => rows,
      async tellOnce(key) {
        told.push(key);
      },
      untell: async () => {},
    },
    workspaces: () => ['w'],
    nearPercent: () => 90,
    unsettled: () => 0,
  });
  await observed.look([OPS]);
  expect(inTurns).toBe(3_000);
  expect(new Set(told).size).toBe(1_000);
});
