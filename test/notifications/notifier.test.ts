import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type Delivery, NOTIFICATION_EVENTS, type Receiver } from '../../src/effects/model/notification.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { type NotifierParts, startNotifier } from '../../src/notifications/notifier.ts';

const PATIENT = { timeout: 20_000, interval: 20 } as const;

let server: Server;
let url = '';
let posted: string[] = [];
beforeEach(async () => {
  posted = [];
  server = createServer((request, response) => {
    void text(request).then((body) => {
      posted.push(body);
      response.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
});
afterEach(() => {
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

async function withNotifier(store: NotifierParts['store'], work: () => Promise<unknown>): Promise<void> {
  const ops: Receiver = {
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
  };
  const receivers = [ops];
  const faults: unknown[] = [];
  const notifier = startNotifier({
    store,
    receivers: () => receivers,
    publicUrl: () => 'http://gateway.test',
    owner: 'one',
    isFleet: false,
    observed: { hand: async () => {}, look: async () => {} },
    attempted: () => {},
    report: (error) => void faults.push(error),
  });
  try {
    await work();
  } finally {
    await notifier.stop();
  }
  expect(faults).toEqual([]);
}

it('where a part of the store is away, what is of the others is told, and what cannot be read waits', async () => {
  const { store, held } = outbox(waiting('1', 'away'), waiting('2', 'w'));
  await withNotifier(store, async () => {
    await expect.poll(() => held.get('2')?.state.kind, PATIENT).toBe('delivered');
    expect(posted).toHaveLength(1);
    expect(held.get('1')).toMatchObject({
      attempts: 0,
      lastFailure: 'what it is about cannot be read',
      state: { kind: 'waiting' },
    });
  });
});

it('what ended long ago is removed as fast as it ends', async () => {
  const { store, forgotten } = outbox();
  await withNotifier(store, () => expect.poll(forgotten, PATIENT).toBe(3));
});
