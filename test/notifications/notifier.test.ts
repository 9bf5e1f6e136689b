import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  type Attempted,
  type Delivery,
  NOTIFICATION_EVENTS,
  type Receiver,
} from '../../src/effects/model/notification.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { type NotifierParts, Notifier } from '../../src/notifications/notifier.ts';
import { APPROVAL } from '../effects/records.ts';

const PATIENT = { timeout: 20_000, interval: 20 } as const;

let server: Server;
let url = '';
let posted: string[] = [];
/** How the receiver answers, in order; then 200. */
let answers: ((response: ServerResponse) => void)[] = [];
beforeEach(async () => {
  posted = [];
  answers = [];
  server = createServer((request, response) => {
    void text(request).then((body) => {
      posted.push(body);
      const answer = answers.shift();
      if (answer === undefined) response.end();
      else answer(response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
});
afterEach(() => {
  vi.useRealTimers();
  server.closeAllConnections();
  server.close();
});

const waiting = (id: string, workspace: string): Delivery => ({
  id,
  notification: { id: `msg_${id}`, event: 'execution.lost', workspace, at: 0, effectId: 'eff_1', data: {} },
  receiver: 'ops',
  receiverName: 'ops',
  attempts: 0,
  lastFailure: null,
  createdAt: 0,
  triedFrom: 0,
  retryForMs: 1e15,
  state: { kind: 'waiting', dueAt: Number(id) },
});

/** An outbox in memory, over a store that does not answer about the workspace `away`. */
function outbox(...deliveries: readonly Delivery[]) {
  const held = new Map(deliveries.map((delivery) => [delivery.id, delivery]));
  const away = async (): Promise<never> => {
    throw new StoreUnavailable('a primary is down');
  };
  let forgotten = 0;
  const store: NotifierParts['store'] = {
    now: () => Date.now(),
    takeSending: async () => true,
    leaveSending: async () => {},
    subscribe: async () => {},
    followLedgers: away,
    async forgetDeliveries() {
      forgotten += 1;
      return forgotten < 3;
    },
    async nextDelivery() {
      const due = [...held.values()].flatMap((one) =>
        one.state.kind === 'waiting' ? [[one.state.dueAt, one] as const] : [],
      );
      return due.toSorted(([one], [other]) => one - other)[0]?.[1] ?? null;
    },
    async settleDelivery(_, after) {
      held.set(after.id, after);
    },
    deadDeliveries: async () => 0,
    effect: (workspace) => (workspace === 'away' ? away() : Promise.resolve(null)),
    approval: async () => null,
  };
  return { store, held, forgotten: () => forgotten };
}

const operators = (): Receiver => ({
  id: 'ops',
  name: 'ops',
  events: NOTIFICATION_EVENTS,
  workspaces: null,
  retryFirstMs: 1000,
  retryForMs: 1e15,
  format: 'slack',
  url,
  secrets: [],
  network: 'any',
});

/** A notifier of one receiver, and what it said. */
function begin(store: NotifierParts['store'], more: Partial<NotifierParts> = {}) {
  const receivers = [operators()];
  const faults: unknown[] = [];
  const attempted: Attempted[] = [];
  const notifier = new Notifier({
    store,
    receivers: () => receivers,
    publicUrl: () => 'http://gateway.test',
    owner: 'one',
    isFleet: false,
    observed: { hand: async () => {}, inspect: async () => {} },
    attempted: (_, one) => void attempted.push(one),
    report: (error) => void faults.push(error),
    ...more,
  });
  return { notifier, faults, attempted };
}

async function withNotifier(
  store: NotifierParts['store'],
  work: (begun: ReturnType<typeof begin>) => Promise<unknown>,
  more: Partial<NotifierParts> = {},
): Promise<void> {
  const begun = begin(store, more);
  try {
    await work(begun);
  } finally {
    await begun.notifier.stop();
  }
  expect(begun.faults).toEqual([]);
}

/** Waits without `expect.poll`, which moves clocks that are not the real ones. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await delay(5);
}

/** Two whole looks of a notifier that counts them by what it asks at the end of each. */
function lookingAt(store: NotifierParts['store']) {
  let looks = 0;
  return {
    counted: { ...store, deadDeliveries: async () => (looks += 1) },
    async twoLooks(): Promise<void> {
      const before = looks;
      await until(() => looks >= before + 2);
    },
  };
}

const many = (count: number) => outbox(...Array.from({ length: count }, (_, n) => waiting(String(n + 1), 'w')));
const broken = (response: ServerResponse): void => void response.writeHead(500).end();

it('where a part of the store is away, what is of the others is told, and what cannot be read waits', async () => {
  const { store, held } = outbox(waiting('1', 'away'), waiting('2', 'w'));
  await withNotifier({ ...store, now: () => 10 }, async () => {
    await expect.poll(() => held.get('2')?.state.kind, PATIENT).toBe('delivered');
    expect(posted).toHaveLength(1);
    expect(held.get('1')).toMatchObject({
      attempts: 0,
      lastFailure: 'what it is about cannot be read',
      state: { kind: 'waiting', dueAt: 5_010 },
    });
  });
});

it('a fault that is no outage of the store is reported, and what it was met with waits', async () => {
  const { store, held } = many(1);
  const odd = new Error('odd');
  const effect: typeof store.effect = () => Promise.reject(odd);
  const { notifier, faults } = begin({ ...store, effect });
  await expect.poll(() => held.get('1')?.lastFailure, PATIENT).toBe('what it is about cannot be read');
  await notifier.stop();
  expect([faults[0], posted]).toEqual([odd, []]);
});

it('what is due is told at the beginning of a look, however long the ledgers take to be read', async () => {
  let read: (isBehind: boolean) => void = () => undefined;
  const { store } = many(1);
  const followLedgers = () =>
    new Promise<boolean>((resolve) => {
      read = resolve;
    });
  await withNotifier({ ...store, followLedgers }, async () => {
    try {
      await expect.poll(() => posted.length, { timeout: 5_000, interval: 20 }).toBe(1);
    } finally {
      read(false);
    }
  });
});

it('what the ledgers bring is told in the same look', async () => {
  // No other look comes.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { store, held } = outbox();
  const followLedgers = async (): Promise<boolean> => {
    await delay(5);
    held.set('1', waiting('1', 'w'));
    return false;
  };
  await withNotifier(
    { ...store, followLedgers, forgetDeliveries: async () => false },
    () => until(() => posted.length === 1),
    // Also where the budgets cannot be read.
    { observed: { hand: async () => {}, inspect: async () => void (await store.followLedgers([])) } },
  );
}, 10_000);

it('what ended long ago is removed as fast as it ends, and looked for each minute', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const { store, forgotten } = outbox();
  const { counted, twoLooks } = lookingAt(store);
  await withNotifier(counted, async () => {
    await until(() => forgotten() === 3);
    vi.advanceTimersByTime(59_999);
    await twoLooks();
    expect(forgotten()).toBe(3);
    vi.advanceTimersByTime(1);
    await twoLooks();
    expect(forgotten()).toBe(4);
  });
});

it('what could not be delivered is counted up to a hundred', async () => {
  const { store } = outbox();
  const deadDeliveries = async (most: number): Promise<number> => Math.min(most, 250);
  await withNotifier({ ...store, deadDeliveries }, ({ notifier }) =>
    expect.poll(() => notifier.dead(), PATIENT).toBe(100),
  );
});

it('where more happens than one look reads, the next follows at once, and what is due is sent in between', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { store } = many(0);
  let reads = 0;
  const followLedgers = async (): Promise<boolean> => (reads += 1) < 45;
  const readsAtLooks: number[] = [];
  const deadDeliveries = async (): Promise<number> => readsAtLooks.push(reads);
  await withNotifier({ ...store, followLedgers, deadDeliveries }, async () => {
    for (let looks = 1; looks <= 3; looks += 1) {
      for (let turns = 0; readsAtLooks.length < looks && turns < 200; turns += 1) await delay(5);
      vi.advanceTimersByTime(0);
    }
  });
  expect(readsAtLooks.slice(0, 3)).toEqual([20, 40, 45]);
});

it('of a request for approval the page is shown where people decide', async () => {
  const { store, held } = many(1);
  const asked = held.get('1');
  if (asked === undefined) throw new Error('nothing waits');
  const data = { approval_id: 'apr_1' };
  held.set('1', { ...asked, notification: { ...asked.notification, event: 'approval.requested', data } });
  const approval: typeof store.approval = async (_, id) => ({ ...APPROVAL, id });
  await withNotifier({ ...store, approval }, () => expect.poll(() => posted.length, PATIENT).toBe(1));
  expect(posted[0]).toMatch(/<http:\/\/gateway\.test\/[^|]*apr_1[^|]*\|Open the request>/);
});

it('a receiver that fails five times in a row is left alone, and twice as long after each further failure', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const { counted, twoLooks } = lookingAt(many(20).store);
  // A success in between begins the count anew.
  const failures = Array.from({ length: 15 }, () => broken);
  answers = [broken, broken, broken, broken, (response) => response.end(), ...failures];
  await withNotifier(counted, async ({ attempted }) => {
    for (const [sent, aloneMs] of [
      [10, 1_000],
      [11, 2_000],
      [12, 4_000],
    ] as const) {
      await until(() => attempted.length >= sent);
      vi.advanceTimersByTime(aloneMs - 1);
      await twoLooks();
      expect(attempted).toHaveLength(sent);
      vi.advanceTimersByTime(1);
    }
    // Then for eight seconds, 16 and 32, and never for longer than a minute.
    for (const sent of [13, 14, 15, 16, 17]) {
      await twoLooks();
      expect(attempted).toHaveLength(sent);
      vi.advanceTimersByTime(sent < 17 ? 60_000 : 59_999);
    }
    await twoLooks();
    expect(attempted).toHaveLength(17);
  });
});

it('a receiver that takes nothing is known after three attempts, also after a restart, until it takes something', async () => {
  const twice = { ...waiting('1', 'w'), attempts: 2 };
  const { store, held } = outbox(twice);
  const { counted, twoLooks } = lookingAt({ ...store, now: () => 0 });
  await withNotifier(counted, async ({ notifier }) => {
    await twoLooks();
    expect(notifier.stuck()).toEqual([]);
  });
  answers = [broken];
  await withNotifier(store, async ({ notifier, attempted }) => {
    await expect.poll(() => held.get('1')?.attempts, PATIENT).toBe(3);
    await expect.poll(() => notifier.stuck(), PATIENT).toMatchObject([{ id: '1', receiverName: 'ops', attempts: 3 }]);
    // One that is new is due first, and says nothing of those before.
    answers = [broken];
    held.set('0', waiting('0', 'w'));
    await expect.poll(() => attempted.length, PATIENT).toBe(2);
    expect(notifier.stuck()).toMatchObject([{ id: '1' }]);
  });
  // Whoever comes after it knows, before anything is tried.
  held.delete('0');
  await withNotifier({ ...store, now: () => 0 }, ({ notifier }) =>
    expect.poll(() => notifier.stuck(), PATIENT).toMatchObject([{ id: '1', attempts: 3 }]),
  );
  held.set('9', { ...waiting('9', 'w'), state: { kind: 'waiting', dueAt: 1e15 } });
  await withNotifier(store, async ({ notifier }) => {
    await expect.poll(() => held.get('1')?.state.kind, PATIENT).toBe('delivered');
    await expect.poll(() => notifier.stuck(), PATIENT).toEqual([]);
  });
});

it('what became of each attempt is told, with what the receiver asks to wait', async () => {
  const { store, held } = many(5);
  answers = [
    (response) => response.writeHead(429, { 'retry-after': '7200' }).end(),
    (response) => response.writeHead(302, { location: url }).end(),
    (response) => response.writeHead(410).end(),
    (response) => response.writeHead(300).end(),
  ];
  await withNotifier(store, async ({ attempted }) => {
    await expect.poll(() => held.get('5')?.state.kind, PATIENT).toBe('delivered');
    expect(attempted.slice(0, 5)).toEqual([
      { kind: 'failed', why: 'it answered 429', afterMs: 7_200_000 },
      { kind: 'failed', why: 'it answered 302: redirects are not followed', afterMs: 0 },
      { kind: 'refused', why: 'it answered 410: it takes nothing more' },
      { kind: 'failed', why: 'it answered 300: redirects are not followed', afterMs: 0 },
      { kind: 'delivered' },
    ]);
    expect(held.get('3')?.state.kind).toBe('dead');
  });
});

it('what was sent is not sent again where the store is away for the moment', async () => {
  const { store, held } = many(1);
  const tried: number[] = [];
  const settleDelivery: typeof store.settleDelivery = async (before, after) => {
    if (tried.push(performance.now()) === 1) throw new StoreUnavailable('a primary is down');
    await store.settleDelivery(before, after);
  };
  await withNotifier({ ...store, settleDelivery }, () =>
    expect.poll(() => held.get('1')?.state.kind, PATIENT).toBe('delivered'),
  );
  expect(posted).toHaveLength(1);
  // And the store is not asked all the time.
  const [first = 0, second = 0] = tried;
  expect(second - first).toBeGreaterThan(400);
});

it('a stop waits for the attempt that is under way, and begins no other', async () => {
  const { store, held } = many(2);
  let answer: () => void = () => undefined;
  answers = [(response) => (answer = () => void response.end())];
  const { notifier } = begin(store);
  await expect.poll(() => posted.length, PATIENT).toBe(1);
  const stopped = notifier.stop();
  answer();
  await stopped;
  expect(held.get('1')?.state.kind).toBe('delivered');
  expect(posted).toHaveLength(1);
});

it('what is not due is not sent, and a receiver that is no longer named gets nothing', async () => {
  const { store, held } = outbox({ ...waiting('1', 'w'), state: { kind: 'waiting', dueAt: Date.now() + 1e9 } });
  const { counted, twoLooks } = lookingAt(store);
  let receivers = [operators()];
  const subscribed: number[] = [];
  const subscribe = async (to: readonly unknown[]): Promise<void> => void subscribed.push(to.length);
  await withNotifier(
    { ...counted, subscribe },
    async ({ notifier }) => {
      await twoLooks();
      receivers = [];
      await expect.poll(() => subscribed, PATIENT).toEqual([1, 0]);
      held.set('1', waiting('1', 'w'));
      receivers = [operators()];
      // Where nobody is told it looks no more, until the configuration changes.
      notifier.changed();
      await expect.poll(() => posted.length, PATIENT).toBe(1);
      expect(subscribed).toEqual([1, 0, 1]);
    },
    { receivers: () => receivers },
  );
});

it('a receiver that is taken out while its message is made gets nothing', async () => {
  const { store } = many(1);
  let receivers = [operators()];
  const effect: typeof store.effect = async () => {
    receivers = [];
    return null;
  };
  await withNotifier({ ...store, effect }, () => until(() => receivers.length === 0), { receivers: () => receivers });
  expect(posted).toEqual([]);
});

describe('where nobody is told', () => {
  it('the store is asked for nothing, and one gateway alone never asks whether it sends', async () => {
    const { store } = outbox();
    const asked: (string | symbol)[] = [];
    const watched = new Proxy(store, {
      get(of, name: keyof typeof store) {
        asked.push(name);
        return of[name];
      },
    });
    const hand = async (): Promise<void> => void asked.push('hand');
    await withNotifier(watched, () => until(() => asked.length > 0), {
      receivers: () => NOBODY,
      observed: { hand, inspect: async () => {} },
    });
    expect(asked).toEqual(['subscribe']);
  });

  it('a stop while it looks is the end of it', async () => {
    const looks: (() => void)[] = [];
    const subscribe = (): Promise<void> => new Promise((resolve) => looks.push(resolve));
    const { notifier } = begin({ ...outbox().store, subscribe }, { receivers: () => NOBODY });
    await until(() => looks.length > 0);
    let isOver = false;
    void notifier.stop().then(() => (isOver = true));
    looks[0]?.();
    await expect.poll(() => isOver, PATIENT).toBe(true);
  });
});

const NOBODY: readonly Receiver[] = [];

describe('of a fleet', () => {
  /** The lease of the sending: whether this gateway gets it, and how often it asked. */
  function lease(of: NotifierParts['store']) {
    const state = { isOurs: true as boolean | 'away', asked: 0, left: 0 };
    const takeSending = async (): Promise<boolean> => {
      state.asked += 1;
      if (state.isOurs === 'away') throw new StoreUnavailable('a primary is down');
      return state.isOurs;
    };
    const leaveSending = async (): Promise<void> => void (state.left += 1);
    return { state, store: { ...of, takeSending, leaveSending } };
  }

  it('one gateway sends, asks every 5 s whether it still does, and leaves off at once where another does', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { store, held } = many(1);
    const { counted, twoLooks } = lookingAt(store);
    const { state, store: leased } = lease(counted);
    await withNotifier(
      leased,
      async () => {
        await until(() => posted.length === 1);
        await twoLooks();
        expect(state.asked).toBe(1);
        state.isOurs = false;
        vi.advanceTimersByTime(5_000);
        await twoLooks();
        expect(state.asked).toBe(2);
        held.set('2', waiting('2', 'w'));
        await twoLooks();
        expect(posted).toHaveLength(1);
      },
      { isFleet: true },
    );
    expect(state.left).toBe(0);
  });

  it('a gateway that does not send looks once, where nobody is told', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const { state, store } = lease(many(0).store);
    state.isOurs = false;
    await withNotifier(
      store,
      async () => {
        await until(() => state.asked === 1);
        await new Promise((resolve) => setImmediate(resolve));
        expect(vi.getTimerCount()).toBe(0);
      },
      { isFleet: true, receivers: () => NOBODY },
    );
  });

  it('each gateway hands in what it has seen, and the one that sends looks at the budgets', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { counted, twoLooks } = lookingAt(many(0).store);
    const { state, store } = lease(counted);
    state.isOurs = false;
    const seen: string[] = [];
    const note = (what: string) => async (to: readonly Receiver[]) =>
      void seen.push(`${what} for ${to.map(({ id }) => id).join()}`);
    await withNotifier(
      store,
      async () => {
        await twoLooks();
        expect(new Set(seen)).toEqual(new Set(['seen for ops']));
        state.isOurs = true;
        vi.advanceTimersByTime(5_000);
        await twoLooks();
        expect(seen).toContain('budgets for ops');
      },
      { isFleet: true, observed: { hand: note('seen'), inspect: note('budgets') } },
    );
  });

  it('a gateway that sends again after another has, tells the store anew who is to be told', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { counted, twoLooks } = lookingAt(many(0).store);
    const told: string[][] = [];
    const subscribe = async (to: readonly Receiver[]): Promise<void> => void told.push(to.map(({ id }) => id));
    const { state, store } = lease({ ...counted, subscribe });
    await withNotifier(
      store,
      async () => {
        await twoLooks();
        expect(told).toEqual([['ops']]);
        state.isOurs = false;
        vi.advanceTimersByTime(5_000);
        await twoLooks();
        state.isOurs = true;
        vi.advanceTimersByTime(5_000);
        await until(() => told.length === 2);
        await twoLooks();
        expect(told).toEqual([['ops'], ['ops']]);
      },
      { isFleet: true },
    );
  });

  it('a gateway that sends no more says nothing of receivers that take nothing', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { store } = outbox({ ...waiting('1', 'w'), attempts: 3 });
    const { counted, twoLooks } = lookingAt({ ...store, now: () => 0 });
    const { state, store: leased } = lease(counted);
    await withNotifier(
      leased,
      async ({ notifier }) => {
        await until(() => notifier.stuck().length === 1);
        state.isOurs = false;
        vi.advanceTimersByTime(5_000);
        await twoLooks();
        expect(notifier.stuck()).toEqual([]);
      },
      { isFleet: true },
    );
  });

  it('begins no attempt that could last longer than it may send, and says when it leaves', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { store, held } = many(1);
    const { counted, twoLooks } = lookingAt(store);
    const { state, store: leased } = lease(counted);
    await withNotifier(
      leased,
      async () => {
        await until(() => posted.length === 1);
        state.isOurs = 'away';
        vi.advanceTimersByTime(10_000);
        held.set('2', waiting('2', 'w'));
        // The first of them does not send: whether it may cannot be asked. What the second began, the others hear of.
        await twoLooks();
        await twoLooks();
        expect(posted).toHaveLength(1);
        state.isOurs = true;
        vi.advanceTimersByTime(5_000);
        await until(() => posted.length === 2);
      },
      { isFleet: true },
    );
    expect(state.left).toBe(1);
  });
});
