import type { Logger } from 'pino';
import type { Note } from '../effects/model/note.ts';
import type { EffectStore } from '../effects/store.ts';
import { Observed } from '../notifications/observed.ts';
import { limitInForce } from '../policy/policies.ts';
import { Notifier } from '../notifications/notifier.ts';
import type { Held } from './in-force.ts';

/** What people are told of: what this gateway sees goes in, and one gateway of the store sends it. */
export class Notifying {
  readonly #parts;
  readonly observed;
  #notifier: Notifier | null = null;

  constructor(parts: {
    readonly store: EffectStore;
    readonly held: Held;
    readonly workspaces: () => readonly string[];
    readonly publicUrl: () => string;
    readonly owner: string;
    readonly isFleet: boolean;
    readonly unsettled: () => number;
    readonly logger: Logger;
  }) {
    this.#parts = parts;
    this.observed = new Observed({
      store: this.#parts.store,
      workspaces: this.#parts.workspaces,
      limitOf: (row) => limitInForce(row, this.#parts.held.inForce.policies),
      nearPercent: () => this.#parts.held.inForce.configuration.telemetry.budgetNearPercent,
      unsettled: this.#parts.unsettled,
    });
  }

  /** What people should look at. */
  notes(): readonly Note[] {
    const dead = this.#notifier?.dead() ?? 0;
    if (dead === 0) return [];
    const message = `${dead}${dead < 100 ? '' : ' or more'} notifications could not be delivered: svc notifications list --state dead shows them, svc notifications resend sends them again.`;
    return [{ part: 'notifications', message }];
  }

  start(): void {
    this.#notifier = new Notifier({
      store: this.#parts.store,
      receivers: () => this.#parts.held.inForce.configuration.webhooks,
      publicUrl: this.#parts.publicUrl,
      owner: this.#parts.owner,
      isFleet: this.#parts.isFleet,
      observed: this.observed,
      attempted: ({ id, receiverName: receiver, notification: { event } }, attempted) => {
        if (attempted.kind === 'delivered')
          this.#parts.logger.debug({ id, receiver, event }, 'a notification was delivered');
        else
          this.#parts.logger.warn({ id, receiver, event, why: attempted.why }, 'a notification could not be delivered');
      },
      report: (error) => this.#parts.logger.error({ err: error }, 'notifying failed'),
    });
  }

  /** The configuration is another. */
  changed(): void {
    this.#notifier?.changed();
  }

  async stop(): Promise<void> {
    return this.#notifier?.stop();
  }
}
