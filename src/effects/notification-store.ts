import type { Delivery, Notification, Subscription } from './model/notification.ts';
import type { Page } from './model/page.ts';

/**
 * The outbox of notifications. What stands in a ledger is taken from there, by a cursor that is kept with what it
 * brought: nothing that notifies is written by the step that it is about.
 */
export interface NotificationStore {
  /** Takes or keeps the sending, for this long. @returns whether it is the caller's; one gateway has it */
  takeSending(owner: string, ms: number): Promise<boolean>;
  leaveSending(owner: string): Promise<void>;
  /**
   * Says who is told from now on. Who is new hears of what happens from now on; what waits for one who is gone is dead.
   * For whoever has the sending, like all that follows here.
   */
  subscribe(subscriptions: readonly Subscription[]): Promise<void>;
  /**
   * Takes what is new in the ledgers into the outbox. Where one cannot be read, it throws after the others.
   * @returns whether there may be more
   */
  followLedgers(subscriptions: readonly Subscription[]): Promise<boolean>;
  /** Removes some deliveries that ended long ago. @returns whether there may be more */
  forgetDeliveries(): Promise<boolean>;
  /** The delivery to a receiver that is due first; `null`: none waits. */
  nextDelivery(receiver: string): Promise<Delivery | null>;
  /** Writes what became of an attempt, unless somebody else has written meanwhile. */
  settleDelivery(before: Delivery, after: Delivery): Promise<void>;

  /**
   * Takes what stands in no ledger into the outbox, once until a time however many gateways see it; any gateway may.
   * @param key what it is about
   */
  tellOnce(
    key: string,
    until: number,
    notification: Omit<Notification, 'id'>,
    subscriptions: readonly Subscription[],
  ): Promise<void>;
  /** It is over: when it happens again, it is told again. */
  untell(key: string): Promise<void>;

  /** Newest first. */
  deliveries(
    state: Delivery['state']['kind'] | null,
    page: { readonly limit: number; readonly cursor: string | null },
  ): Promise<Page<Delivery>>;
  /** How many could not be delivered, up to `most`. */
  deadDeliveries(most: number): Promise<number>;
  /**
   * Has a delivery that has ended made again, for as long as the first time. `null`: there is none.
   * @param receivers those that there are
   */
  resend(
    id: string,
    receivers: readonly string[],
  ): Promise<{ readonly kind: 'resent' | 'waits' | 'no_receiver'; readonly delivery: Delivery } | null>;
}
