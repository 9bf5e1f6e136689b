import { setTimeout as delay } from 'node:timers/promises';
import { afterAttempt, type Attempted, type Delivery, type Receiver } from '../effects/model/notification.ts';
import type { NotificationStore } from '../effects/notification-store.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { messageOf } from './message.ts';
import type { Observed } from './observed.ts';
import { send, SEND_TIMEOUT_MS } from './send.ts';

/** How often the ledgers and the outbox are looked at, ms. */
const LOOK_MS = 500;
/** In a fleet one gateway sends. It says so again every so often; when it has been silent for the other, another does, ms. */
const RENEW_MS = 5_000;
const LEASE_MS = 20_000;
const TIDY_MS = 60_000;
/** So often one look reads on in the ledgers, where more happens than one read finds. */
const MOST_READS = 20;
/** So many failures in a row, and a receiver is left alone for a while, ms: twice as long after each further one. */
const FAILURES = 5;
const ALONE_MS = 1_000;
const LONGEST_ALONE_MS = 60_000;
/** What cannot be read from the store now is looked at again after so long, ms. */
const UNREAD_MS = 5_000;
/** So many that could not be delivered are counted. */
const MOST_DEAD = 100;

export interface NotifierParts {
  readonly store: Omit<NotificationStore, 'tellOnce' | 'untell' | 'deliveries' | 'resend'> &
    Pick<EffectStore, 'effect' | 'approval' | 'now'>;
  readonly receivers: () => readonly Receiver[];
  readonly publicUrl: () => string;
  /** Names this gateway. */
  readonly owner: string;
  /** Whether other gateways may be at the same store. */
  readonly isFleet: boolean;
  /** What stands in no ledger. */
  readonly observed: Pick<Observed, 'hand' | 'look'>;
  readonly attempted: (delivery: Delivery, attempted: Attempted) => void;
  readonly report: (error: unknown) => void;
}

export interface Notifier {
  /** How many notifications could not be delivered, at most 100. */
  dead(): number;
  /** The configuration is another. */
  changed(): void;
  /** Lets the attempts under way come to an end. */
  stop(): Promise<void>;
}

/** One receiver as whoever sends sees it. */
interface Line {
  /** Attempts at the same time: one, so that what is killed leaves one in doubt. */
  running: Promise<void> | null;
  failures: number;
  aloneUntil: number;
}

/** Sends what the outbox holds. It does nothing, and reads nothing, while the configuration names no receiver. */
export function startNotifier(parts: NotifierParts): Notifier {
  const { store, owner } = parts;
  const lines = new Map<string, Line>();
  let subscribed: readonly Receiver[] | null = null;
  let leadsUntil = 0;
  let renewAt = 0;
  let tidyAt = 0;
  let dead = 0;
  let hasMore = false;
  let isStopping = false;
  let wake: () => void = () => undefined;

  async function leads(): Promise<boolean> {
    if (!parts.isFleet) {
      leadsUntil = Infinity;
      return true;
    }
    const now = performance.now();
    if (now < renewAt) return now < leadsUntil;
    renewAt = now + RENEW_MS;
    leadsUntil = (await store.takeSending(owner, LEASE_MS)) ? now + LEASE_MS : 0;
    return leadsUntil > 0;
  }

  async function look(): Promise<void> {
    hasMore = false;
    const receivers = parts.receivers();
    if (receivers.length > 0) await parts.observed.hand(receivers);
    if (!(await leads())) {
      subscribed = null;
      return;
    }
    if (subscribed !== receivers) {
      await store.subscribe(receivers);
      subscribed = receivers;
    }
    if (receivers.length === 0) return;
    const serveAll = (): void => {
      for (const receiver of receivers) serve(receiver);
    };
    // Where a part of the store is away, or takes its time, what is known is told all the same.
    serveAll();
    await guarded(() => readOn(receivers));
    await guarded(() => parts.observed.look(receivers));
    serveAll();
    if (performance.now() < tidyAt) return;
    tidyAt = performance.now() + TIDY_MS;
    // Where more ends than one round removes, the outbox would grow and grow.
    if (await store.forgetDeliveries()) tidyAt = 0;
  }

  async function readOn(receivers: readonly Receiver[]): Promise<void> {
    let isBehind = true;
    for (let reads = 0; isBehind && reads < MOST_READS && !isStopping; reads += 1)
      isBehind = await store.followLedgers(receivers);
    hasMore = isBehind;
  }

  function serve(receiver: Receiver): void {
    const line = lines.get(receiver.id) ?? { running: null, failures: 0, aloneUntil: 0 };
    lines.set(receiver.id, line);
    line.running ??= guarded(() => sendDue(receiver, line)).finally(() => {
      line.running = null;
    });
  }

  const maySend = (receiver: Receiver): boolean =>
    !isStopping && performance.now() + SEND_TIMEOUT_MS < leadsUntil && parts.receivers().includes(receiver);

  async function sendDue(receiver: Receiver, line: Line): Promise<void> {
    while (maySend(receiver) && performance.now() >= line.aloneUntil) {
      const delivery = await store.nextDelivery(receiver.id);
      if (delivery?.state.kind !== 'waiting' || delivery.state.dueAt > store.now()) return;
      const message = await messageFor(delivery).catch(reported);
      if (!maySend(receiver)) return;
      if (message === null) {
        // It waits, and holds up no other.
        const state = { kind: 'waiting', dueAt: store.now() + UNREAD_MS } as const;
        await settled(delivery, { ...delivery, lastFailure: 'what it is about cannot be read', state });
        continue;
      }
      const attempted = await send(receiver, message, store.now());
      line.failures = attempted.kind === 'failed' ? line.failures + 1 : 0;
      if (line.failures >= FAILURES)
        line.aloneUntil =
          performance.now() + Math.min(ALONE_MS * 2 ** Math.min(line.failures - FAILURES, 10), LONGEST_ALONE_MS);
      parts.attempted(delivery, attempted);
      await settled(delivery, afterAttempt(delivery, attempted, receiver, store.now(), Math.random()));
    }
  }

  /** What was sent is not sent again because the store is away for a while. */
  async function settled(before: Delivery, after: Delivery): Promise<void> {
    for (;;)
      try {
        return await store.settleDelivery(before, after);
      } catch (error) {
        if (!(error instanceof StoreUnavailable) || isStopping) throw error;
        await delay(LOOK_MS, undefined, { ref: false });
      }
  }

  /** As it is when it is sent: what was erased meanwhile is not said. */
  async function messageFor({ notification }: Delivery) {
    const { workspace, effectId, data } = notification;
    const { approval_id: approvalId } = data;
    const effect = effectId === null ? null : await store.effect(workspace, effectId);
    const approval = typeof approvalId === 'string' ? await store.approval(workspace, approvalId) : null;
    return messageOf(notification, { effect, approval }, parts.publicUrl());
  }

  function reported(error: unknown): null {
    if (!(error instanceof StoreUnavailable)) parts.report(error);
    return null;
  }

  const isIdle = (): boolean =>
    parts.receivers().length === 0 && (subscribed === parts.receivers() || leadsUntil === 0);

  async function guarded(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      reported(error);
    }
  }

  const running = (async () => {
    while (!isStopping) {
      await guarded(look);
      if (parts.receivers().length > 0)
        await guarded(async () => {
          dead = await store.deadDeliveries(MOST_DEAD);
        });
      if (isStopping) break;
      await new Promise<void>((resolve) => {
        // Where nobody is told, one look is enough: it ends what waits for those who were.
        const timer = isIdle() ? undefined : setTimeout(resolve, hasMore ? 0 : LOOK_MS).unref();
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    await Promise.all([...lines.values()].flatMap(({ running: sending }) => sending ?? []));
    if (parts.isFleet && leadsUntil > 0) await guarded(() => store.leaveSending(owner));
  })();

  return {
    dead: () => dead,
    changed: () => wake(),
    stop() {
      isStopping = true;
      wake();
      return running;
    },
  };
}
