import { expect, it } from 'vitest';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import {
  afterAttempt,
  type Delivery,
  NOTIFICATION_EVENTS,
  type NotificationEvent,
  type Subscription,
} from '../../src/effects/model/notification.ts';
import type { LedgerDraft } from '../../src/effects/model/ledger.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import type { NotificationStore } from '../../src/effects/notification-store.ts';
import { Outbox } from '../../src/records/notification-outbox.ts';
import { createNotifications } from '../../src/records/notifications.ts';
import { createStepRunner, type StepRunner } from '../../src/records/runner.ts';
import { appendEvents } from '../../src/records/view.ts';
import type { LedgerQuery, RowStore } from '../../src/stores/port.ts';
import { emptyRows, mapStore } from '../port/map-rows.ts';

const DAY = 86_400_000;
const OPS: Subscription = {
  id: 'ops',
  name: 'ops',
  events: NOTIFICATION_EVENTS,
  workspaces: null,
  retryFirstMs: 1000,
  retryForMs: 3 * DAY,
};

/** Two gateways over one store. The first can be frozen where it has read a ledger; each may have reads that fail. */
function twoGateways() {
  let now = 1_750_000_000_000;
  const rows = emptyRows();
  const store = mapStore(rows, () => now);
  let frozen: { readonly at: () => void; readonly until: Promise<void> } | null = null;
  let isAway: (query: LedgerQuery) => boolean = () => false;
  const freezing: RowStore = {
    ...store,
    async ledger(query) {
      if (isAway(query)) throw new StoreUnavailable('a primary is down');
      const read = await store.ledger(query);
      if (query.workspace === 'w') {
        frozen?.at();
        await frozen?.until;
      }
      return read;
    },
  };
  const open = (rows: RowStore, runner: StepRunner): NotificationStore =>
    createNotifications(
      { store: rows, turns: createReadingTurns() },
      runner,
      () => 'install',
      async () => ['w', 'x'],
    );
  const runner = createStepRunner(store);
  return {
    rows,
    store,
    one: open(freezing, createStepRunner(freezing)),
    other: open(store, runner),
    async pause(id: string, workspace = 'w'): Promise<void> {
      const actor = { type: 'user', id: 'maria' } as const;
      await runner.run(workspace, (draft) =>
        appendEvents(draft, [{ kind: 'pause.set', effectId: null, actor, data: { pause_id: id } }]),
      );
    },
    pass(ms: number): void {
      now += ms;
    },
    /** Freezes the first one in its next read of the ledger. @returns how it goes on, once it is frozen there */
    async freeze(work: () => Promise<unknown>): Promise<() => Promise<unknown>> {
      let goOn = (): void => {};
      const until = new Promise<void>((resolve) => {
        goOn = resolve;
      });
      let working: Promise<unknown> = Promise.resolve();
      await new Promise<void>((resolve) => {
        frozen = { at: resolve, until };
        working = work();
      });
      frozen = null;
      return () => {
        goOn();
        return working;
      };
    },
    fail(when: (query: LedgerQuery) => boolean): void {
      isAway = when;
    },
  };
}

const all = async (store: NotificationStore): Promise<readonly Delivery[]> =>
  (await store.deliveries(null, { limit: 200, cursor: null })).items;
const pausesOf = async (store: NotificationStore) =>
  (await all(store)).map(({ notification: { data } }) => JSON.stringify(data['pause_id'])).toSorted();

async function deliverAll(store: NotificationStore): Promise<void> {
  for (let next = await store.nextDelivery('ops'); next !== null; next = await store.nextDelivery('ops'))
    await store.settleDelivery(next, { ...next, attempts: 1, state: { kind: 'delivered', at: next.createdAt } });
}

/** What a receiver is told beside workspace, effect, tool, agent and summary, as docs/operating/notifications.md has it. */
const TOLD: readonly (readonly [kind: LedgerDraft['kind'], event: NotificationEvent, members: readonly string[]])[] = [
  ['approval.requested', 'approval.requested', ['approval_id', 'expires_at']],
  ['approval.renewed', 'approval.requested', ['approval_id', 'instead_of', 'expires_at']],
  ['approval.escalated', 'approval.escalated', ['approval_id', 'roles', 'users', 'expires_at']],
  ['approval.granted', 'approval.granted', ['approval_id', 'user', 'complete', 'void']],
  ['approval.rejected', 'approval.rejected', ['approval_id', 'user']],
  ['approval.expired', 'approval.expired', ['approval_id', 'code']],
  ['allowance.given', 'allowance.given', ['allowance_id', 'approval_id', 'given_by', 'times', 'expires_at']],
  ['execution.lost', 'execution.lost', ['code', 'quiet_at']],
  ['pause.set', 'pause.set', ['pause_id', 'scope', 'reason', 'until']],
  ['pause.lifted', 'pause.lifted', ['pause_id']],
  ['policy.rejected', 'policy.rejected', ['in_force']],
  [
    'policy.proposed',
    'policy.proposed',
    ['proposal', 'version', 'instead_of', 'how', 'proposed_by', 'why', 'expires_at'],
  ],
];
it.each(TOLD)(
  'of %s is told, as %s, what is documented, and nothing else that stands in the ledger',
  async (kind, event, members) => {
    const { one, store } = twoGateways();
    await one.subscribe([OPS]);
    const own = ['comment', 'digest', 'changed', 'target', 'key_id', 'rules', 'receipt_id', 'evidence'];
    const data = Object.fromEntries([...members, ...own].map((name) => [name, `the ${name}`]));
    const actor = { type: 'user', id: 'maria' } as const;
    await createStepRunner(store).run('w', (draft) => appendEvents(draft, [{ kind, effectId: 'eff_1', actor, data }]));
    await one.followLedgers([OPS]);
    const told = (await all(one)).map(({ notification }) => notification);
    expect(told).toMatchObject([{ event, workspace: 'w', effectId: 'eff_1' }]);
    expect(told[0]?.data).toEqual(Object.fromEntries(members.map((name) => [name, `the ${name}`])));
  },
);

it('what else happens to calls is told to nobody', async () => {
  const { one, store } = twoGateways();
  await one.subscribe([OPS]);
  const actor = { type: 'gateway', id: 'sweeper' } as const;
  const kinds = ['effect.admitted', 'effect.denied', 'allowance.used', 'allowance.revoked'] as const;
  await createStepRunner(store).run('w', (draft) =>
    appendEvents(
      draft,
      kinds.map((kind) => ({ kind, effectId: null, actor, data: {} })),
    ),
  );
  await one.followLedgers([OPS]);
  expect(await all(one)).toEqual([]);
});

it('what was delivered is kept for a day, and what is dead for 30', async () => {
  const { one, pause, pass } = twoGateways();
  await one.subscribe([OPS]);
  const end = async (kind: 'delivered' | 'dead'): Promise<void> => {
    await pause(kind);
    await one.followLedgers([OPS]);
    const next = await one.nextDelivery('ops');
    if (next === null) throw new Error('nothing waits');
    await one.settleDelivery(next, { ...next, attempts: 1, state: { kind, at: next.createdAt } });
  };
  await end('delivered');
  await end('dead');
  const kept = async (ms: number): Promise<readonly string[]> => {
    pass(ms);
    while (await one.forgetDeliveries());
    return pausesOf(one);
  };
  expect(await kept(DAY - 1)).toEqual(['"dead"', '"delivered"']);
  expect(await kept(2)).toEqual(['"dead"']);
  expect(await kept(29 * DAY - 2)).toEqual(['"dead"']);
  expect(await kept(2)).toEqual([]);
});

it('a gateway that was frozen with what it had read of a ledger takes in nothing of it, and moves no cursor back', async () => {
  const { one, other, pause, pass, freeze } = twoGateways();
  await other.subscribe([OPS]);
  await one.subscribe([OPS]);
  await pause('a');
  await pause('b');
  const goOn = await freeze(() => one.followLedgers([OPS]));
  await other.followLedgers([OPS]);
  expect(await pausesOf(other)).toEqual(['"a"', '"b"']);
  await deliverAll(other);
  // Of what was delivered long ago nothing says any more that it was told.
  pass(DAY + 1);
  await other.forgetDeliveries();
  expect(await all(other)).toEqual([]);
  await goOn();
  expect(await all(other)).toEqual([]);
  for (const gateway of [one, other]) {
    await pause(gateway === one ? 'c' : 'd');
    await gateway.followLedgers([OPS]);
    await gateway.followLedgers([OPS]);
  }
  expect(await pausesOf(other)).toEqual(['"c"', '"d"']);
});

it('a gateway that was frozen while it began moves no cursor back', async () => {
  const { one, other, pause, pass, freeze } = twoGateways();
  await pause('before');
  const goOn = await freeze(() => one.subscribe([OPS]));
  await other.subscribe([OPS]);
  pass(1);
  await pause('a');
  await other.followLedgers([OPS]);
  await deliverAll(other);
  pass(DAY + 1);
  await other.forgetDeliveries();
  await goOn();
  await one.followLedgers([OPS]);
  expect(await all(other)).toEqual([]);
});

it('after an accepted loss all that happened since is told, also where it stands in the places of what was told before', async () => {
  const { rows, one, pause } = twoGateways();
  await one.subscribe([OPS]);
  for (const id of ['a', 'b', 'c']) await pause(id);
  await one.followLedgers([OPS]);
  expect(await pausesOf(one)).toEqual(['"a"', '"b"', '"c"']);
  rows.spaces.get('w')?.ledger.splice(-2);
  rows.epoch = 2;
  for (const id of ['d', 'e', 'f']) await pause(id);
  for (let hasMore = true; hasMore; ) hasMore = await one.followLedgers([OPS]);
  expect(await pausesOf(one)).toEqual(['a', 'b', 'c', 'd', 'e', 'f'].map((id) => `"${id}"`));
});

it('what a frozen gateway had read before a loss is not taken in at the same place after it', async () => {
  const { rows, one, other, pause, freeze } = twoGateways();
  for (const store of [one, other]) await store.subscribe([OPS]);
  await pause('a');
  for (const store of [one, other]) await store.followLedgers([OPS]);
  await pause('b');
  const goOn = await freeze(() => one.followLedgers([OPS]));
  rows.spaces.get('w')?.ledger.splice(0);
  rows.epoch = 2;
  await pause('d');
  for (let hasMore = true; hasMore; ) hasMore = await other.followLedgers([OPS]);
  await goOn();
  expect(await pausesOf(other)).toEqual(['"a"', '"d"']);
});

it('what ended long ago is removed as long as there is some', async () => {
  const { one, pause, pass } = twoGateways();
  await one.subscribe([OPS]);
  for (let n = 0; n < 150; n += 1) await pause(`p${n}`);
  while (await one.followLedgers([OPS]));
  await deliverAll(one);
  pass(DAY + 1);
  expect(await one.forgetDeliveries()).toBe(true);
  expect(await one.forgetDeliveries()).toBe(false);
  expect(await all(one)).toEqual([]);
});

it('where one ledger cannot be read the others are, and it is said', async () => {
  const { one, pause, fail } = twoGateways();
  await one.subscribe([OPS]);
  await pause('a', 'w');
  await pause('b', 'x');
  fail(({ workspace }) => workspace === 'w');
  await expect(one.followLedgers([OPS])).rejects.toThrow('a primary is down');
  expect(await pausesOf(one)).toEqual(['"b"']);
  fail(() => false);
  await one.followLedgers([OPS]);
  expect(await pausesOf(one)).toEqual(['"a"', '"b"']);
});

it('of a receiver that is gone none waits, however many did; and what is old is forgotten to the last', async () => {
  const { one, pause, pass } = twoGateways();
  await one.subscribe([OPS]);
  // More than are removed in one step.
  for (let n = 0; n < 101; n += 1) await pause(`p${n}`);
  while (await one.followLedgers([OPS]));
  expect(await all(one)).toHaveLength(101);
  await one.subscribe([]);
  expect(new Set((await all(one)).map(({ state: { kind } }) => kind))).toEqual(new Set(['dead']));
  pass(31 * DAY);
  while (await one.forgetDeliveries());
  expect(await all(one)).toEqual([]);
});

it('ten thousand wait for a receiver at most, also by the count of a gateway that begins; what is sent makes room', async () => {
  const store = mapStore(emptyRows(), () => 1_750_000_000_000);
  const begin = async (): Promise<Outbox> => {
    const from = { store, turns: createReadingTurns() };
    const outbox = new Outbox(from, createStepRunner(store), () => 'install');
    await outbox.subscribe([OPS], async () => {});
    return outbox;
  };
  const at = store.now();
  let told = 0;
  /** How many of so many wait then. */
  const tell = async (outbox: Outbox, count = 1): Promise<number> => {
    const waiting = await outbox.run((draft) =>
      Array.from({ length: count }, () => {
        told += 1;
        const about = { event: 'pause.set', workspace: 'w', at, effectId: null, data: {} } as const;
        return outbox.put(draft, { ...about, id: `msg_${told}` }, [OPS]);
      }).flat(),
    );
    outbox.added(waiting);
    return waiting.length;
  };
  const one = await begin();
  expect([await tell(one, 9_999), await tell(one), await tell(one)]).toEqual([9_999, 1, 0]);
  const other = await begin();
  expect(await tell(other)).toBe(0);
  const sent = await other.next('ops');
  if (sent === null) throw new Error('nothing waits');
  await other.settle(sent, { ...sent, attempts: 1, state: { kind: 'delivered', at } });
  expect([await tell(other), await tell(other)]).toEqual([1, 0]);
  const { items } = await other.page('dead', { limit: 10, cursor: null });
  const why = 'more than 10000 notifications wait for this receiver';
  expect(items.map(({ lastFailure }) => lastFailure)).toEqual([why, why, why]);
});

it('what is sent again is tried for as long as the first time', async () => {
  const { one, pause, pass } = twoGateways();
  await one.subscribe([OPS]);
  await pause('a');
  await one.followLedgers([OPS]);
  const fail = async (at: number): Promise<Delivery['state']> => {
    const delivery = await one.nextDelivery('ops');
    if (delivery === null) throw new Error('nothing waits');
    const failed = afterAttempt(delivery, { kind: 'failed', why: 'no', afterMs: 0 }, OPS, at, 0.5);
    await one.settleDelivery(delivery, failed);
    return failed.state;
  };
  const [{ id, createdAt } = { id: '', createdAt: 0 }] = await all(one);
  pass(OPS.retryForMs);
  const later = createdAt + OPS.retryForMs;
  expect(await fail(later)).toEqual({ kind: 'dead', at: later });
  await one.resend(id, ['ops']);
  expect(await fail(later)).toEqual({ kind: 'waiting', dueAt: later + 2000 });
});

it('that something was told once is kept until its time, and no longer', async () => {
  const { one, pass, store } = twoGateways();
  await one.subscribe([OPS]);
  const at = store.now();
  const tell = (key: string, days: number): Promise<void> => {
    const about = { event: 'budget.near_limit', workspace: 'w', effectId: null, data: {} } as const;
    return one.tellOnce(key, at + days * DAY, { ...about, at: store.now() }, [OPS]);
  };
  const notes = { kind: 'told', list: 'told', order: 'up', from: null, to: null, after: null } as const;
  const kept = async (): Promise<readonly string[]> => {
    const { entries } = await store.list({ ...notes, workspace: '', limit: 200, characters: 1_000_000 });
    return entries.map(({ id }) => id);
  };
  await tell('of a month', 30);
  // As many as one round removes.
  for (let n = 0; n < 100; n += 1) await tell(`row ${n}`, 1);
  pass(DAY + 1);
  expect([await one.forgetDeliveries(), await one.forgetDeliveries()]).toEqual([true, false]);
  expect(await kept()).toEqual(['of a month']);
});
