import { describe, expect, it } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import {
  afterAttempt,
  type Delivery,
  NOTIFICATION_EVENTS,
  type Subscription,
} from '../../src/effects/model/notification.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { type Capabilities, DAY, type OpenStore, useStore } from './fixture.ts';
import { PERSON, WORKSPACE } from './requests.ts';

const OPS: Subscription = {
  id: 'ops',
  name: 'ops',
  events: NOTIFICATION_EVENTS,
  workspaces: null,
  retryFirstMs: 1000,
  retryForMs: 3 * DAY,
};
const PAUSES: Subscription = { ...OPS, id: 'pauses', name: 'pauses', events: ['pause.set'], workspaces: [WORKSPACE] };

/** The outbox: what stands in a ledger is taken up once, whoever looks, and stays until it is delivered or given up. */
export function describeNotifications(open: OpenStore, capabilities: Capabilities): void {
  describe('notifications', () => {
    const at = useStore(open, capabilities);
    let pauses = 0;
    const pause = (workspace = WORKSPACE) => {
      pauses += 1;
      return at.store.setPause({
        id: `pau_${pauses}`,
        workspace,
        scope: { kind: 'workspace' },
        reason: 'test',
        until: null,
        by: { keyId: 'key_1', keyKind: 'account', user: 'maria' },
        actor: PERSON,
      });
    };
    const follow = async (...subscriptions: readonly Subscription[]): Promise<void> => {
      while (await at.store.followLedgers(subscriptions));
    };
    const all = async (state: Delivery['state']['kind'] | null = null): Promise<readonly Delivery[]> =>
      (await at.store.deliveries(state, { limit: 200, cursor: null })).items;
    const told = (deliveries: readonly Delivery[]): readonly string[] =>
      deliveries.map(({ receiver, notification: { event, data } }) => `${receiver} ${event} ${pauseOf(data)}`);

    it('of what happened before somebody was to be told are no news; of a workspace that comes later all is', async () => {
      await pause();
      await at.store.subscribe([OPS]);
      await pause();
      await pause('later');
      await follow(OPS);
      expect(told(await all()).toSorted()).toEqual([`ops pause.set pau_${pauses - 1}`, `ops pause.set pau_${pauses}`]);
    });

    it('are for each receiver what it wants, and the same for all by their id', async () => {
      await at.store.subscribe([OPS, PAUSES]);
      await pause();
      const id = `pau_${pauses}`;
      await at.store.liftPause(WORKSPACE, id, 'account', PERSON);
      await pause('later');
      await follow(OPS, PAUSES);
      expect(told(await all()).toSorted()).toEqual([
        `ops pause.lifted ${id}`,
        `ops pause.set ${id}`,
        `ops pause.set pau_${pauses}`,
        `pauses pause.set ${id}`,
      ]);
      const ids = (await all()).filter(({ notification }) => notification.data['pause_id'] === id);
      expect(new Set(ids.map(({ notification }) => notification.id)).size).toBe(2);
    });

    it('are taken up once, however many look, and after a restart', async () => {
      await at.store.subscribe([OPS]);
      for (let n = 0; n < 30; n += 1) await pause();
      await Promise.all([at.store.followLedgers([OPS]), at.store.followLedgers([OPS])]);
      await at.reopen();
      await at.store.subscribe([OPS]);
      await follow(OPS);
      expect(new Set(told(await all())).size).toBe(30);
      expect(await all()).toHaveLength(30);
    });

    it('go on where they were, past events that nobody is told of', async () => {
      await at.store.subscribe([OPS]);
      await pause();
      await at.store.append(
        WORKSPACE,
        Array.from({ length: 450 }, () => OTHER),
      );
      await pause();
      await follow(OPS);
      await at.reopen();
      await at.store.subscribe([OPS]);
      await pause();
      await follow(OPS);
      expect(await all()).toHaveLength(3);
    });

    it('are sent by one: whoever has the sending keeps it, and leaves it to the next', async () => {
      expect(await at.store.takeSending('one', 60_000)).toBe(true);
      expect(await at.store.takeSending('other', 60_000)).toBe(false);
      expect(await at.store.takeSending('one', 60_000)).toBe(true);
      await at.store.leaveSending('other');
      expect(await at.store.takeSending('other', 60_000)).toBe(false);
      await at.store.leaveSending('one');
      expect(await at.store.takeSending('other', 60_000)).toBe(true);
    });

    at.timed('are sent by another when whoever had the sending is silent', async () => {
      await at.store.takeSending('one', 20_000);
      at.advance(20_001);
      expect(await at.store.takeSending('other', 20_000)).toBe(true);
    });

    it('wait again after a failure, later each time, and an attempt counts once', async () => {
      await at.store.subscribe([OPS]);
      await pause();
      await follow(OPS);
      const first = await next();
      expect(first).toMatchObject({ attempts: 0, state: { kind: 'waiting' } });
      const failed = { kind: 'failed', why: 'it answered 500', afterMs: 0 } as const;
      const after = afterAttempt(first, failed, OPS, at.store.now(), 0.5);
      await at.store.settleDelivery(first, after);
      // A gateway that was frozen meanwhile changes nothing.
      await at.store.settleDelivery(first, afterAttempt(first, { kind: 'delivered' }, OPS, at.store.now(), 0.5));
      const second = await next();
      expect(second).toMatchObject({ attempts: 1, lastFailure: 'it answered 500', state: after.state });
      const third = afterAttempt(second, failed, OPS, 0, 0.5);
      expect(third.state).toEqual({ kind: 'waiting', dueAt: 2000 });
      await at.store.settleDelivery(second, afterAttempt(second, { kind: 'delivered' }, OPS, at.store.now(), 0.5));
      expect(await at.store.nextDelivery('ops')).toBeNull();
      expect(await all('delivered')).toHaveLength(1);
    });

    it('are given up after their time, can be seen, and are sent again when somebody says so', async () => {
      await at.store.subscribe([OPS]);
      await pause();
      await follow(OPS);
      const first = await next();
      const failed = { kind: 'failed', why: 'no', afterMs: 0 } as const;
      const dead = afterAttempt(first, failed, OPS, first.triedFrom + OPS.retryForMs, 0.5);
      expect(dead.state.kind).toBe('dead');
      await at.store.settleDelivery(first, dead);
      expect(await at.store.nextDelivery('ops')).toBeNull();
      expect(await at.store.deadDeliveries(10)).toBe(1);
      expect(await at.store.resend('dlv_none', ['ops'])).toBeNull();
      expect(await at.store.resend(first.id, [])).toMatchObject({ kind: 'no_receiver' });
      expect(await at.store.resend(first.id, ['ops'])).toMatchObject({ kind: 'resent' });
      expect(await at.store.resend(first.id, ['ops'])).toMatchObject({ kind: 'waits' });
      expect((await next()).notification.id).toBe(first.notification.id);
      expect(await at.store.deadDeliveries(10)).toBe(0);
    });

    it('for a receiver that is gone are dead, and when it comes back it hears of what is new', async () => {
      await at.store.subscribe([OPS, PAUSES]);
      await pause();
      await follow(OPS, PAUSES);
      await at.store.subscribe([OPS]);
      expect(await at.store.nextDelivery('pauses')).toBeNull();
      expect(told(await all('dead'))).toEqual([`pauses pause.set pau_${pauses}`]);
      await at.store.subscribe([]);
      await pause();
      await at.store.subscribe([OPS]);
      await pause();
      await follow(OPS);
      expect(told(await all('waiting'))).toEqual([`ops pause.set pau_${pauses}`]);
    });

    it('of what stands in no ledger come once until their time, and again when it was over', async () => {
      await at.store.subscribe([OPS]);
      const now = at.store.now();
      const tool = {
        event: 'tool.quarantined',
        workspace: INSTALLATION,
        at: now,
        effectId: null,
        data: { tool: 'crm.find' },
      } as const;
      const tell = (later: number) =>
        at.store.tellOnce('tool crm.find', now + DAY, { ...tool, at: now + later }, [OPS]);
      await Promise.all([tell(0), tell(1), tell(2)]);
      expect(await all()).toHaveLength(1);
      await at.store.untell('tool crm.find');
      await tell(3);
      expect(await all()).toHaveLength(2);
    });

    at.timed('are forgotten after a day where they were delivered, after thirty where not', async () => {
      await at.store.subscribe([OPS]);
      await pause();
      await pause();
      await follow(OPS);
      for (const kind of ['delivered', 'dead'] as const) {
        const one = await next();
        await at.store.settleDelivery(one, { ...one, attempts: 1, state: { kind, at: at.now() } });
      }
      at.advance(DAY + 1);
      await at.store.forgetDeliveries();
      expect((await all()).map(({ state }) => state.kind)).toEqual(['dead']);
      at.advance(29 * DAY);
      await at.store.forgetDeliveries();
      expect(await all()).toEqual([]);
    });

    async function next(): Promise<Delivery> {
      const delivery = await at.store.nextDelivery('ops');
      if (delivery === null) throw new Error('nothing waits');
      return delivery;
    }
  });
}

/** Nobody is told of it. */
const OTHER = { kind: 'policy.loaded', effectId: null, actor: PERSON, data: { version: 'v' } } as const;

function pauseOf({ pause_id: id }: JsonObject): string {
  return typeof id === 'string' ? id : '';
}
