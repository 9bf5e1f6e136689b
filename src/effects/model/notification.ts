import type { JsonObject } from '../../json/value.ts';

export const NOTIFICATION_EVENTS = [
  'approval.requested',
  'approval.escalated',
  'approval.granted',
  'approval.rejected',
  'approval.expired',
  'execution.lost',
  'pause.set',
  'pause.lifted',
  'budget.near_limit',
  'policy.rejected',
  'policy.proposed',
  'allowance.given',
  'tool.quarantined',
  'retention.stalled',
] as const;

export type NotificationEvent = (typeof NOTIFICATION_EVENTS)[number];

/** What happened, as people are told of it. */
export interface Notification {
  /** The same for every receiver and every attempt, so that what comes twice is known. */
  readonly id: string;
  readonly event: NotificationEvent;
  /** Empty: the installation. */
  readonly workspace: string;
  /** ms by the store's clock. */
  readonly at: number;
  readonly effectId: string | null;
  /** Nothing that an agent wrote, and no params. */
  readonly data: JsonObject;
}

/** Who is told, and of what. */
export interface Subscription {
  /** Names the receiver in the store, over changes of its address and its secrets. */
  readonly id: string;
  readonly name: string;
  readonly events: readonly NotificationEvent[];
  /** `null`: all, and the installation. */
  readonly workspaces: readonly string[] | null;
  /** The wait before the second attempt, ms; each further one is twice as long. */
  readonly retryFirstMs: number;
  /** Attempts are made for this long, ms. */
  readonly retryForMs: number;
}

/** Where notifications go, and how. */
export type Receiver = Subscription &
  (
    | {
        readonly format: 'standard' | 'slack';
        readonly url: string;
        /** Secrets that sign, as Base64, the present one first; none: nothing is signed. */
        readonly secrets: readonly string[];
        readonly network: 'any' | 'public';
      }
    | {
        readonly format: 'mail';
        readonly server: MailServer;
        readonly from: string;
        readonly to: readonly string[];
        readonly network: 'any' | 'public';
      }
  );

export interface MailServer {
  readonly host: string;
  readonly port: number;
  /** `implicit`: from the first byte on. `required`: by STARTTLS. `none`: in clear, on this machine. */
  readonly tls: 'implicit' | 'required' | 'none';
  readonly user: string;
  readonly password: string;
}

/** One notification for one receiver. */
export interface Delivery {
  readonly id: string;
  readonly notification: Notification;
  /** {@link Subscription.id} and name. */
  readonly receiver: string;
  readonly receiverName: string;
  readonly attempts: number;
  readonly lastFailure: string | null;
  readonly createdAt: number;
  /** When it was taken up, or was to be sent again; attempts are made for so long from then on, ms. */
  readonly triedFrom: number;
  readonly retryForMs: number;
  readonly state:
    | { readonly kind: 'waiting'; readonly dueAt: number }
    | { readonly kind: 'delivered'; readonly at: number }
    | { readonly kind: 'dead'; readonly at: number };
}

export const DELIVERY_STATES = ['waiting', 'delivered', 'dead'] as const;

export type Attempted =
  | { readonly kind: 'delivered' }
  /** `afterMs`: what the receiver asks to wait. */
  | { readonly kind: 'failed'; readonly why: string; readonly afterMs: number }
  /** Another attempt would end the same. */
  | { readonly kind: 'refused'; readonly why: string };

export function isWanted(
  { events, workspaces }: Pick<Subscription, 'events' | 'workspaces'>,
  { event, workspace }: Pick<Notification, 'event' | 'workspace'>,
): boolean {
  return events.includes(event) && (workspaces === null || workspaces.includes(workspace));
}

/** The longest wait between two attempts, ms. */
const LONGEST_WAIT_MS = 6 * 3_600_000;

/**
 * A delivery after an attempt.
 * @param random from 0 to 1; waits differ by up to a quarter, so that what failed together is not tried together
 */
export function afterAttempt(
  delivery: Delivery,
  attempted: Attempted,
  retry: Pick<Subscription, 'retryFirstMs'>,
  now: number,
  random: number,
): Delivery {
  const attempts = delivery.attempts + 1;
  switch (attempted.kind) {
    case 'delivered':
      return { ...delivery, attempts, lastFailure: null, state: { kind: 'delivered', at: now } };
    case 'refused':
      return { ...delivery, attempts, lastFailure: attempted.why, state: { kind: 'dead', at: now } };
    case 'failed': {
      const backOff = Math.min(retry.retryFirstMs * 2 ** Math.min(attempts - 1, 30), LONGEST_WAIT_MS);
      const waitMs = Math.max(Math.round(backOff * (0.75 + random / 2)), Math.min(attempted.afterMs, LONGEST_WAIT_MS));
      const state: Delivery['state'] =
        now + waitMs > delivery.triedFrom + delivery.retryForMs
          ? { kind: 'dead', at: now }
          : { kind: 'waiting', dueAt: now + waitMs };
      return { ...delivery, attempts, lastFailure: attempted.why, state };
    }
  }
}
