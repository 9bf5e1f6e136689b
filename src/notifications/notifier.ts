import { setTimeout as delay } from 'node:timers/promises';
import { afterAttempt, type Attempted, type Delivery, type Receiver } from '../effects/model/notification.ts';
import type { NotificationStore } from '../effects/notification-store.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { messageOf } from './message.ts';
import type { Observed } from './observed.ts';
import { send, SEND_TIMEOUT_MS } from './send.ts';

/** How often the ledgers and the outbox are looked at, ms. */
const POLL_MS = 500;
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
/** After so many attempts people should know that one is not taken, though it is tried further for days. */
const NOTEWORTHY = 3;
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
  readonly observed: Pick<Observed, 'hand' | 'inspect'>;
  readonly attempted: (delivery: Delivery, attempted: Attempted) => void;
  readonly report: (error: unknown) => void;
}

interface Line {
  /** Attempts at the same time: one, so that what is killed leaves one in doubt. */
  running: Promise<void> | null;
  failures: number;
  aloneUntil: number;
  /** One that is not taken, however often it was tried. */
  stuck: Delivery | null;
}

/** Sends what the outbox holds. It does nothing, and reads nothing, while the configuration names no receiver. */
export class Notifier {
  readonly #parts;
  readonly #store;
  readonly #lines = new Map<string, Line>();
  #subscribed: readonly Receiver[] | null = null;
  #leadsUntil = 0;
  #renewAt = 0;
  #tidyAt = 0;
  #dead = 0;
  #hasMore = false;
  #isStopping = false;
  #wake: () => void = () => undefined;
  readonly #running;

  constructor(parts: NotifierParts) {
    this.#parts = parts;
    this.#store = parts.store;
    this.#running = this.#run();
  }

  /** How many notifications could not be delivered, at most 100. */
  dead(): number {
    return this.#dead;
  }

  /** Of each receiver that does not take them, one that was tried often. Only the gateway that sends knows. */
  stuck(): readonly Delivery[] {
    if (performance.now() >= this.#leadsUntil) return [];
    return this.#parts.receivers().flatMap(({ id }) => this.#lines.get(id)?.stuck ?? []);
  }

  /** The configuration is another. */
  changed(): void {
    this.#wake();
  }

  /** Lets the attempts under way come to an end. */
  stop(): Promise<void> {
    this.#isStopping = true;
    this.#wake();
    return this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#isStopping) {
      await this.#guarded(() => this.#poll());
      if (this.#parts.receivers().length > 0)
        await this.#guarded(async () => {
          this.#dead = await this.#store.deadDeliveries(MOST_DEAD);
        });
      if (this.#isStopping) break;
      await new Promise<void>((resolve) => {
        // Where nobody is told, one look is enough: it ends what waits for those who were.
        const timer = this.#isIdle() ? undefined : setTimeout(resolve, this.#hasMore ? 0 : POLL_MS).unref();
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    await Promise.all([...this.#lines.values()].flatMap(({ running: sending }) => sending ?? []));
    if (this.#parts.isFleet && this.#leadsUntil > 0)
      await this.#guarded(() => this.#store.leaveSending(this.#parts.owner));
  }

  async #leads(): Promise<boolean> {
    if (!this.#parts.isFleet) {
      this.#leadsUntil = Infinity;
      return true;
    }
    const now = performance.now();
    if (now < this.#renewAt) return now < this.#leadsUntil;
    this.#renewAt = now + RENEW_MS;
    this.#leadsUntil = (await this.#store.takeSending(this.#parts.owner, LEASE_MS)) ? now + LEASE_MS : 0;
    return this.#leadsUntil > 0;
  }

  async #poll(): Promise<void> {
    this.#hasMore = false;
    const receivers = this.#parts.receivers();
    if (receivers.length > 0) await this.#parts.observed.hand(receivers);
    if (!(await this.#leads())) {
      this.#subscribed = null;
      return;
    }
    if (this.#subscribed !== receivers) {
      await this.#store.subscribe(receivers);
      this.#subscribed = receivers;
    }
    if (receivers.length === 0) return;
    const serveAll = (): void => {
      for (const receiver of receivers) this.#serve(receiver);
    };
    // Where a part of the store is away, or takes its time, what is known is told all the same.
    serveAll();
    await this.#guarded(() => this.#readOn(receivers));
    await this.#guarded(() => this.#parts.observed.inspect(receivers));
    serveAll();
    if (performance.now() < this.#tidyAt) return;
    this.#tidyAt = performance.now() + TIDY_MS;
    // Where more ends than one round removes, the outbox would grow and grow.
    if (await this.#store.forgetDeliveries()) this.#tidyAt = 0;
  }

  async #readOn(receivers: readonly Receiver[]): Promise<void> {
    let isBehind = true;
    for (let reads = 0; isBehind && reads < MOST_READS && !this.#isStopping; reads += 1)
      isBehind = await this.#store.followLedgers(receivers);
    this.#hasMore = isBehind;
  }

  #serve(receiver: Receiver): void {
    const line = this.#lines.get(receiver.id) ?? { running: null, failures: 0, aloneUntil: 0, stuck: null };
    this.#lines.set(receiver.id, line);
    line.running ??= this.#guarded(() => this.#sendDue(receiver, line)).finally(() => {
      line.running = null;
    });
  }

  #maySend(receiver: Receiver): boolean {
    return (
      !this.#isStopping &&
      performance.now() + SEND_TIMEOUT_MS < this.#leadsUntil &&
      this.#parts.receivers().includes(receiver)
    );
  }

  async #sendDue(receiver: Receiver, line: Line): Promise<void> {
    while (this.#maySend(receiver) && performance.now() >= line.aloneUntil) {
      const delivery = await this.#store.nextDelivery(receiver.id);
      // The one that is due first may be new; what was tried before it is as stuck as it was.
      if (delivery === null || delivery.attempts >= NOTEWORTHY) line.stuck = delivery;
      if (delivery?.state.kind !== 'waiting' || delivery.state.dueAt > this.#store.now()) return;
      const message = await this.#messageFor(delivery).catch((error: unknown) => this.#reported(error));
      if (!this.#maySend(receiver)) return;
      if (message === null) {
        // It waits, and holds up no other.
        const state = { kind: 'waiting', dueAt: this.#store.now() + UNREAD_MS } as const;
        await this.#settled(delivery, { ...delivery, lastFailure: 'what it is about cannot be read', state });
        continue;
      }
      const attempted = await send(receiver, message, this.#store.now());
      line.failures = attempted.kind === 'failed' ? line.failures + 1 : 0;
      if (line.failures === 0) line.stuck = null;
      if (line.failures >= FAILURES)
        line.aloneUntil =
          performance.now() + Math.min(ALONE_MS * 2 ** Math.min(line.failures - FAILURES, 10), LONGEST_ALONE_MS);
      this.#parts.attempted(delivery, attempted);
      await this.#settled(delivery, afterAttempt(delivery, attempted, receiver, this.#store.now(), Math.random()));
    }
  }

  /** What was sent is not sent again because the store is away for a while. */
  async #settled(before: Delivery, after: Delivery): Promise<void> {
    for (;;)
      try {
        return await this.#store.settleDelivery(before, after);
      } catch (error) {
        if (!(error instanceof StoreUnavailable) || this.#isStopping) throw error;
        await delay(POLL_MS, undefined, { ref: false });
      }
  }

  /** As it is when it is sent: what was erased meanwhile is not said. */
  async #messageFor({ notification }: Delivery) {
    const { workspace, effectId, data } = notification;
    const { approval_id: approvalId } = data;
    const effect = effectId === null ? null : await this.#store.effect(workspace, effectId);
    const approval = typeof approvalId === 'string' ? await this.#store.approval(workspace, approvalId) : null;
    return messageOf(notification, { effect, approval }, this.#parts.publicUrl());
  }

  #reported(error: unknown): null {
    if (!(error instanceof StoreUnavailable)) this.#parts.report(error);
    return null;
  }

  #isIdle(): boolean {
    return (
      this.#parts.receivers().length === 0 && (this.#subscribed === this.#parts.receivers() || this.#leadsUntil === 0)
    );
  }

  async #guarded(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#reported(error);
    }
  }
}
