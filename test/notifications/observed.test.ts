import { afterEach, expect, it, vi } from 'vitest';
import type { BudgetRow } from '../../src/effects/model/effect.ts';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { NOTIFICATION_EVENTS, type Receiver } from '../../src/effects/model/notification.ts';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { Observed } from '../../src/notifications/observed.ts';

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

afterEach(() => vi.useRealTimers());

const ROW: BudgetRow = {
  budget: 'b',
  unit: 'cent',
  bucket: 'customer 1',
  window: 'd:2000',
  limit: 100,
  spent: 90,
  held: 0,
  resetsAt: 2_000_000,
};

type Store = ConstructorParameters<typeof Observed>[0]['store'];

/** What is seen of these budgets, and what the store was asked to tell. */
function watching(
  budgets: (workspace: string) => readonly BudgetRow[],
  turns = createReadingTurns(),
  unsettled = () => 0,
  workspaces: readonly string[] = ['w'],
  limitOf = ({ limit }: BudgetRow): number => limit,
  nearPercent = 90,
) {
  const told: (readonly [key: string, event: string])[] = [];
  const notified: (readonly [until: number, Parameters<Store['tellOnce']>[2]])[] = [];
  const untold: string[] = [];
  const clock = { now: 1_000_000, isAway: false };
  const observed = new Observed({
    store: {
      now: () => clock.now,
      turns,
      budgets: async (workspace) => budgets(workspace),
      async tellOnce(key, until, notification) {
        if (clock.isAway) throw new StoreUnavailable('a primary is down');
        told.push([key, notification.event]);
        notified.push([until, notification]);
      },
      async untell(key) {
        untold.push(key);
      },
    },
    workspaces: () => workspaces,
    limitOf,
    nearPercent: () => nearPercent,
    unsettled,
  });
  return { observed, told, notified, untold, clock };
}

it('budgets by params are judged in turns, as lists are, and so many are told of in one look', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const rows = Array.from({ length: 3_000 }, (_, n) => ({
    ...ROW,
    bucket: `customer ${n}`,
    spent: n < 2_500 ? 95 : 5,
  }));
  const turns = createReadingTurns();
  let inTurns = 0;
  const { observed, told } = watching(() => rows, {
    ...turns,
    map(items, make) {
      inTurns += items.length;
      return turns.map(items, make);
    },
  });
  const receivers = [OPS];
  await observed.inspect(receivers);
  expect(inTurns).toBe(3_000);
  expect(new Set(told.map(([key]) => key)).size).toBe(1_000);
  // The next looks tell the rest.
  for (const sum of [2_000, 2_500]) {
    vi.advanceTimersByTime(15_000);
    await observed.inspect(receivers);
    expect(new Set(told.map(([key]) => key)).size).toBe(sum);
  }
});

it('so many are told of in one look, in whichever workspaces', async () => {
  const rows = Array.from({ length: 400 }, (_, n) => ({ ...ROW, bucket: `customer ${n}` }));
  const { observed, notified } = watching(() => rows, undefined, undefined, ['a', 'b', 'c', 'd']);
  await observed.inspect([OPS]);
  const of = (one: string) => notified.filter(([, { workspace }]) => workspace === one).length;
  expect(['a', 'b', 'c', 'd'].map(of)).toEqual([400, 400, 200, 0]);
});

it.each([
  ['spent to the percent', { spent: 90 }, 1],
  ['spent and held to the percent', { spent: 80, held: 10 }, 1],
  ['short of it', { spent: 80, held: 9 }, 0],
  ['without a limit', { limit: 0 }, 0],
])('a budget that is %s', async (_, row, times) => {
  const { observed, told } = watching(() => [{ ...ROW, ...row }]);
  await observed.inspect([OPS]);
  expect(told).toHaveLength(times);
});

it('is told anew to receivers that are others, once each', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const { observed, told } = watching(() => [ROW]);
  const [before, after] = [[OPS], [OPS]];
  for (const receivers of [before, before, after, after]) {
    await observed.inspect(receivers);
    vi.advanceTimersByTime(15_000);
  }
  expect(told).toHaveLength(2);
});

it('is near the limit that policy has now, whatever the row was last judged with', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  let limit = 1_000;
  const { observed, notified } = watching(
    () => [ROW],
    undefined,
    undefined,
    undefined,
    () => limit,
  );
  const receivers = [OPS];
  await observed.inspect(receivers);
  expect(notified).toEqual([]);
  // Near the next one as well, it is told again.
  for (const next of [95, 100]) {
    limit = next;
    vi.advanceTimersByTime(60_000);
    await observed.inspect(receivers);
  }
  expect(notified.map(([, { data }]) => data['limit'])).toEqual([95, 100]);
});

it('each row and each window of a budget is told of by itself: once, until it is reset, and to others again', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  let rows = [ROW, { ...ROW, bucket: 'customer 2' }];
  const { observed, told, clock } = watching(() => rows);
  const lookAgain = async (receivers = [OPS]): Promise<number> => {
    vi.advanceTimersByTime(15_000);
    await observed.inspect(receivers);
    return told.length;
  };
  const receivers = [OPS];
  expect(await lookAgain(receivers)).toBe(2);
  expect(await lookAgain(receivers)).toBe(2);
  rows = [{ ...ROW, window: 'd:2001', resetsAt: 3_000_000 }];
  expect(await lookAgain(receivers)).toBe(3);
  clock.now = 3_000_000;
  expect(await lookAgain(receivers)).toBe(4);
  expect(await lookAgain([OPS])).toBe(5);
  // Budgets are looked at every 15 s, and not in each look.
  await observed.inspect([OPS]);
  expect(told).toHaveLength(5);
});

it('says how far a budget is used and when it begins anew; one that never does is told of again after a day', async () => {
  const forever = { ...ROW, budget: 'total', spent: 60, held: 35, resetsAt: null };
  const { observed, notified } = watching(() => [{ ...ROW, held: 3 }, forever]);
  await observed.inspect([OPS]);
  const of = { event: 'budget.near_limit', workspace: 'w', effectId: null, at: 1_000_000 };
  const data = {
    budget: 'b',
    unit: 'cent',
    currency: null,
    limit: 100,
    spent: 90,
    held: 3,
    resets_at: '1970-01-01T00:33:20.000Z',
  };
  expect(notified).toEqual([
    [2_000_000, { ...of, data }],
    [1_000_000 + 86_400_000, { ...of, data: { ...data, budget: 'total', spent: 60, held: 35, resets_at: null } }],
  ]);
});

it('says in which currency a budget is counted, where its bucket or its unit says so', async () => {
  const euros = { ...ROW, bucket: '["bot","EUR"]' };
  const francs = { ...ROW, budget: 'c', unit: 'CHF-cent' };
  const { observed, notified } = watching(() => [euros, francs, { ...ROW, budget: 'd' }]);
  await observed.inspect([OPS]);
  expect(notified.map(([, { data }]) => data['currency'])).toEqual(['EUR', 'CHF', null]);
});

it('effects that retention must leave are told of once a day', async () => {
  let unsettled = 0;
  const { observed, notified, clock } = watching(
    () => [],
    createReadingTurns(),
    () => unsettled,
  );
  const receivers = [OPS];
  await observed.inspect(receivers);
  expect(notified).toEqual([]);
  unsettled = 1;
  await observed.inspect(receivers);
  await observed.inspect(receivers);
  const told = { event: 'retention.stalled', workspace: INSTALLATION, effectId: null, at: 1_000_000 };
  expect(notified).toEqual([[87_400_000, { ...told, data: { effects: 1 } }]]);
  clock.now = 87_399_999;
  await observed.inspect(receivers);
  expect(notified).toHaveLength(1);
  clock.now = 87_400_000;
  await observed.inspect(receivers);
  expect(notified).toHaveLength(2);
});

it('what the store did not take is told when it is back', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const { observed, told, clock } = watching(() => [ROW]);
  const receivers = [OPS];
  observed.quarantined('mcp.see', 'changed');
  clock.isAway = true;
  await expect(observed.hand(receivers)).rejects.toThrow(StoreUnavailable);
  await expect(observed.inspect(receivers)).rejects.toThrow(StoreUnavailable);
  clock.isAway = false;
  vi.advanceTimersByTime(15_000);
  await observed.hand(receivers);
  await observed.inspect(receivers);
  expect(told.map(([, event]) => event)).toEqual(['tool.quarantined', 'budget.near_limit']);
});

it('budgets are read every 15 s, also for who is told of one workspace', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  let reads = 0;
  const { observed } = watching(() => {
    reads += 1;
    return [];
  });
  const receivers: readonly Receiver[] = [{ ...OPS, workspaces: ['w'] }];
  for (const [passed, sum] of [
    [0, 1],
    [14_999, 1],
    [1, 2],
  ] as const) {
    vi.advanceTimersByTime(passed);
    await observed.inspect(receivers);
    expect(reads).toBe(sum);
  }
});

it.each([
  [50, 1],
  [91, 0],
])('a budget that is used to 90 percent is near its limit from %i percent on: %i', async (percent, times) => {
  const { observed, told } = watching(() => [ROW], undefined, undefined, undefined, undefined, percent);
  await observed.inspect([OPS]);
  expect(told).toHaveLength(times);
});

it('budgets are not read where nobody wants to know', async () => {
  let reads = 0;
  const { observed } = watching(() => {
    reads += 1;
    return [];
  });
  await observed.inspect([{ ...OPS, events: ['pause.set'] }]);
  await observed.inspect([{ ...OPS, workspaces: ['elsewhere'] }]);
  expect(reads).toBe(0);
});

it('a tool that is back as it was is no longer told of, and the next change of it is', async () => {
  const { observed, told, untold } = watching(() => []);
  const receivers = [OPS];
  observed.quarantined('mcp.see', 'changed');
  await observed.hand(receivers);
  observed.quarantined('mcp.see', 'changed');
  await observed.hand(receivers);
  expect(told).toEqual([['tool mcp.see', 'tool.quarantined']]);
  observed.released('mcp.see');
  await observed.hand(receivers);
  expect(untold).toEqual(['tool mcp.see']);
  observed.quarantined('mcp.see', 'gone');
  await observed.hand(receivers);
  expect(told).toHaveLength(2);
});

it('what waits for the store has a bound, and what came while it was handed over stays', async () => {
  const { observed, told } = watching(() => []);
  for (let n = 0; n < 1_500; n += 1) observed.quarantined(`mcp.t${n}`, 'changed');
  await observed.hand([OPS]);
  expect(told).toHaveLength(1_000);

  const later = watching(() => []);
  later.observed.quarantined('mcp.see', 'changed');
  const handing = later.observed.hand([OPS]);
  later.observed.released('mcp.see');
  await handing;
  await later.observed.hand([OPS]);
  expect(later.untold).toEqual(['tool mcp.see']);
});

it('what was told is remembered up to a bound', async () => {
  const { observed, told } = watching(() => []);
  const receivers = [OPS];
  const tell = async (from: number, to: number): Promise<void> => {
    for (let n = from; n < to; n += 1) observed.quarantined(`mcp.t${n}`, 'changed');
    await observed.hand(receivers);
  };
  for (let n = 0; n < 100_000; n += 1_000) await tell(n, n + 1_000);
  await tell(0, 1);
  expect(told).toHaveLength(100_000);
  await tell(100_000, 100_001);
  await tell(0, 1);
  expect(told).toHaveLength(100_002);
});

it('what is seen of tools is told in its order, and of one tool what was seen last', async () => {
  const { observed, notified } = watching(() => []);
  observed.quarantined('a', 'changed');
  observed.quarantined('b', 'changed');
  observed.quarantined('a', 'gone');
  await observed.hand([OPS]);
  expect(notified.map(([, { data }]) => data)).toEqual([
    { tool: 'b', state: 'changed' },
    { tool: 'a', state: 'gone' },
  ]);
});
