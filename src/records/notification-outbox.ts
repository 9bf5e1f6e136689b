import type { RowStore } from '../stores/port.ts';
import { createHash } from 'node:crypto';
import { INSTALLATION } from '../effects/model/ledger.ts';
import { type Delivery, isWanted, type Notification, type Subscription } from '../effects/model/notification.ts';
import type { NotificationStore } from '../effects/notification-store.ts';
import { PAGE_BYTES } from '../effects/model/page.ts';
import { ONLY } from './control-rows.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, repository } from './kind.ts';
import { entries, firstOf, type Readable } from './lists.ts';
import { pageOf } from './pages.ts';
import { readRecord, type StepRunner } from './runner.ts';

/** Deliveries that wait for one receiver; what comes beyond is dead at once, and can be sent again. */
const MOST_WAITING = 10_000;
/** How long deliveries that have ended are shown, ms. */
const DELIVERED_KEPT_MS = 86_400_000;
const DEAD_KEPT_MS = 30 * 86_400_000;
/** So many rows one step or one sweep removes. */
const AT_ONCE = 100;

const DELIVERIES = 'deliveries';
const DEAD = 'deliveries:dead';
const OVER = 'deliveries:over';
const waitingFor = (receiver: string): string => `deliveries:waiting:${receiver}`;

const deliveryRows = repository(
  jsonKind<Delivery>('delivery', ({ createdAt, receiver, state }) => [
    { list: DELIVERIES, at: createdAt },
    ...(state.kind === 'waiting' ? [{ list: waitingFor(receiver), at: state.dueAt }] : []),
    ...(state.kind === 'delivered' ? [{ list: OVER, at: state.at + DELIVERED_KEPT_MS }] : []),
    ...(state.kind === 'dead'
      ? [
          { list: DEAD, at: state.at },
          { list: OVER, at: state.at + DEAD_KEPT_MS },
        ]
      : []),
  ]),
);
/** Who is told, by their ids: since when, ms. */
const subscriberRows = repository(jsonKind<Readonly<Record<string, number>>>('notified', () => []));
const ONCE = 'told';
const onceRows = repository(jsonKind<{ readonly until: number }>('told', ({ until }) => [{ list: ONCE, at: until }]));

export const notificationId = (prefix: 'msg' | 'dlv', ...parts: readonly (string | number)[]): string =>
  `${prefix}_${createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32)}`;

/** What was taken up to be told: for whom it waits, and what became of it. */
export class Outbox {
  readonly #from: Readable<RowStore>;
  readonly #runner: StepRunner;
  readonly #installId: () => string;
  /** How many wait for whom, as whoever has the sending counts them. */
  readonly #waiting = new Map<string, number>();
  #since: Readonly<Record<string, number>> = {};

  constructor(from: Readable<RowStore>, runner: StepRunner, installId: () => string) {
    this.#from = from;
    this.#runner = runner;
    this.#installId = installId;
  }

  async run<Result>(step: (draft: Draft) => Result): Promise<Result> {
    return (await this.#runner.run(INSTALLATION, step)).result;
  }

  /** @param begin called where nobody was told before */
  async subscribe(subscriptions: readonly Subscription[], begin: () => Promise<void>): Promise<void> {
    const ids = new Set(subscriptions.map(({ id }) => id));
    const before = (await readRecord(this.#runner, subscriberRows, INSTALLATION, ONLY)) ?? {};
    for (const id of Object.keys(before)) if (!ids.has(id)) await this.#bury(id);
    if (ids.size > 0 && Object.keys(before).length === 0) await begin();
    this.#since = await this.run((draft) => {
      const there = subscriberRows.get(draft, ONLY);
      const next = Object.fromEntries([...ids].map((id) => [id, there?.[id] ?? draft.now] as const));
      if (JSON.stringify(next) !== JSON.stringify(there ?? {})) subscriberRows.put(draft, ONLY, next);
      return next;
    });
    for (const id of ids) this.#waiting.set(id, await this.#countWaiting(id));
  }

  /** What waits for a receiver that is gone. */
  async #bury(receiver: string): Promise<void> {
    const asked = { workspace: INSTALLATION, list: waitingFor(receiver), kind: deliveryRows.kind };
    for (;;) {
      const found = await firstOf(this.#from.store, asked, AT_ONCE);
      for (const { id } of found)
        await this.run((draft) => {
          const delivery = deliveryRows.get(draft, id);
          if (delivery?.state.kind === 'waiting')
            deliveryRows.put(draft, id, {
              ...delivery,
              lastFailure: 'the configuration does not name this receiver any more',
              state: { kind: 'dead', at: draft.now },
            });
        });
      if (found.length < AT_ONCE) return;
    }
  }

  async #countWaiting(receiver: string): Promise<number> {
    let count = 0;
    const asked = { workspace: INSTALLATION, list: waitingFor(receiver), kind: deliveryRows.kind };
    for await (const _ of entries(this.#from.store, asked)) {
      count += 1;
      if (count >= MOST_WAITING) break;
    }
    return count;
  }

  /** @returns the receivers for whom one more waits */
  put(draft: Draft, notification: Notification, subscriptions: readonly Subscription[]): readonly string[] {
    return subscriptions.flatMap((subscription) => {
      const { id: receiver, name: receiverName, retryForMs } = subscription;
      if (!isWanted(subscription, notification) || notification.at < (this.#since[receiver] ?? 0)) return [];
      const id = notificationId('dlv', notification.id, receiver);
      if (deliveryRows.get(draft, id, MOSTLY_ABSENT) !== null) return [];
      const isTooMany = (this.#waiting.get(receiver) ?? 0) >= MOST_WAITING;
      deliveryRows.put(draft, id, {
        id,
        notification,
        receiver,
        receiverName,
        attempts: 0,
        lastFailure: isTooMany ? `more than ${MOST_WAITING} notifications wait for this receiver` : null,
        createdAt: draft.now,
        triedFrom: draft.now,
        retryForMs,
        state: isTooMany ? { kind: 'dead', at: draft.now } : { kind: 'waiting', dueAt: draft.now },
      });
      return isTooMany ? [] : [receiver];
    });
  }

  /** One more waits for each. */
  added(receivers: readonly string[]): void {
    for (const receiver of receivers) this.#waiting.set(receiver, (this.#waiting.get(receiver) ?? 0) + 1);
  }

  async forget(): Promise<boolean> {
    const { store } = this.#from;
    const asked = { workspace: INSTALLATION, to: store.now() };
    const over = await firstOf(store, { ...asked, list: OVER, kind: deliveryRows.kind }, AT_ONCE);
    for (const { id } of over)
      await this.run((draft) => {
        const state = deliveryRows.get(draft, id)?.state.kind ?? 'waiting';
        if (state !== 'waiting') deliveryRows.put(draft, id, null);
      });
    const expired = await firstOf(store, { ...asked, list: ONCE, kind: onceRows.kind }, AT_ONCE);
    for (const { id } of expired)
      await this.run((draft) => {
        const there = onceRows.get(draft, id);
        if (there !== null && there.until <= draft.now) onceRows.put(draft, id, null);
      });
    return over.length === AT_ONCE || expired.length === AT_ONCE;
  }

  async next(receiver: string): Promise<Delivery | null> {
    const asked = { workspace: INSTALLATION, list: waitingFor(receiver), kind: deliveryRows.kind };
    const [first] = await firstOf(this.#from.store, asked, 1);
    return first === undefined ? null : deliveryRows.of(first.row);
  }

  async settle(before: Delivery, after: Delivery): Promise<void> {
    const isOver = await this.run((draft) => {
      const there = deliveryRows.get(draft, before.id);
      if (there === null || there.state.kind !== 'waiting' || there.attempts !== before.attempts) return true;
      deliveryRows.put(draft, before.id, after);
      return after.state.kind !== 'waiting';
    });
    const { receiver } = before;
    if (isOver) this.#waiting.set(receiver, Math.max(0, (this.#waiting.get(receiver) ?? 0) - 1));
  }

  async tellOnce(
    ...[key, until, notification, subscriptions]: Parameters<NotificationStore['tellOnce']>
  ): Promise<void> {
    if (!subscriptions.some((one) => isWanted(one, notification))) return;
    const added = await this.run((draft) => {
      const there = onceRows.get(draft, key);
      if (there !== null && there.until > draft.now) return [];
      onceRows.put(draft, key, { until });
      return this.put(
        draft,
        { ...notification, id: notificationId('msg', this.#installId(), key, notification.at) },
        subscriptions,
      );
    });
    this.added(added);
  }

  untell(key: string): Promise<void> {
    return this.run((draft) => {
      if (onceRows.get(draft, key) !== null) onceRows.put(draft, key, null);
    });
  }

  page(...[state, { limit, cursor }]: Parameters<NotificationStore['deliveries']>) {
    const list = state === 'dead' ? DEAD : DELIVERIES;
    const most = { items: limit, characters: PAGE_BYTES };
    return pageOf(this.#from, { workspace: INSTALLATION, list, kind: deliveryRows.kind }, cursor, most, (row) => {
      const delivery = deliveryRows.of(row);
      return state === null || delivery.state.kind === state ? delivery : null;
    });
  }

  async dead(most: number): Promise<number> {
    const asked = { workspace: INSTALLATION, list: DEAD, kind: deliveryRows.kind };
    return (await firstOf(this.#from.store, asked, most)).length;
  }

  resend(...[id, receivers]: Parameters<NotificationStore['resend']>): ReturnType<NotificationStore['resend']> {
    return this.run((draft) => {
      const delivery = deliveryRows.get(draft, id);
      if (delivery === null) return null;
      if (delivery.state.kind === 'waiting') return { kind: 'waits', delivery };
      if (!receivers.includes(delivery.receiver)) return { kind: 'no_receiver', delivery };
      const again: Delivery = { ...delivery, triedFrom: draft.now, state: { kind: 'waiting', dueAt: draft.now } };
      deliveryRows.put(draft, id, again);
      return { kind: 'resent', delivery: again };
    });
  }
}
