import type { Logger } from 'pino';
import type { EffectStore } from '../effects/store.ts';
import { Observed } from '../notifications/observed.ts';
import { Notifier } from '../notifications/notifier.ts';
import type { Held } from './in-force.ts';

/** What people are told of: what this gateway sees goes in, and one gateway of the store sends it. */
export interface Notifying extends Pick<Observed, 'quarantined' | 'released'> {
  /** What people should look at. */
  notes(): readonly { readonly part: string; readonly message: string }[];
  /** Begins to send. */
  start(): void;
  /** The configuration is another. */
  changed(): void;
  stop(): Promise<void>;
}

/** Connects the notifications with the rest of the gateway. */
export function createNotifying(parts: {
  readonly store: EffectStore;
  readonly held: Held;
  readonly workspaces: () => readonly string[];
  readonly publicUrl: () => string;
  readonly owner: string;
  readonly isFleet: boolean;
  readonly unsettled: () => number;
  readonly logger: Logger;
}): Notifying {
  const { store, held, logger } = parts;
  const observed = new Observed({
    store,
    workspaces: parts.workspaces,
    nearPercent: () => held.inForce.configuration.telemetry.budgetNearPercent,
    unsettled: parts.unsettled,
  });
  let notifier: Notifier | null = null;
  return {
    quarantined: (tool, state) => observed.quarantined(tool, state),
    released: (tool) => observed.released(tool),
    notes() {
      const dead = notifier?.dead() ?? 0;
      if (dead === 0) return [];
      const message = `${dead}${dead < 100 ? '' : ' or more'} notifications could not be delivered: svc notifications list --state dead shows them, svc notifications resend sends them again.`;
      return [{ part: 'notifications', message }];
    },
    start() {
      notifier = new Notifier({
        store,
        receivers: () => held.inForce.configuration.webhooks,
        publicUrl: parts.publicUrl,
        owner: parts.owner,
        isFleet: parts.isFleet,
        observed,
        attempted({ id, receiverName: receiver, notification: { event } }, attempted) {
          if (attempted.kind === 'delivered') logger.debug({ id, receiver, event }, 'a notification was delivered');
          else logger.warn({ id, receiver, event, why: attempted.why }, 'a notification could not be delivered');
        },
        report: (error) => logger.error({ err: error }, 'notifying failed'),
      });
    },
    changed: () => notifier?.changed(),
    stop: async () => notifier?.stop(),
  };
}
