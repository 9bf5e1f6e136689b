import { INSTALLATION, type LedgerKind } from '../effects/model/ledger.ts';
import {
  isWanted,
  type Notification,
  type NotificationEvent,
  type Subscription,
} from '../effects/model/notification.ts';
import type { NotificationStore } from '../effects/notification-store.ts';
import type { JsonObject } from '../json/value.ts';
import type { LedgerEntry, RowStore } from '../stores/port.ts';
import { ONLY } from './control-rows.ts';
import { jsonKind, repository } from './kind.ts';
import type { Readable } from './lists.ts';
import { notificationId, Outbox } from './notification-outbox.ts';
import { readRecord, type StepRunner } from './runner.ts';
import { eventOf } from './view.ts';

/** Which events of the ledger are told, as what, and which members of their data. */
const NOTIFIED: Partial<Record<LedgerKind, readonly [event: NotificationEvent, ...members: string[]]>> = {
  'approval.requested': ['approval.requested', 'approval_id', 'expires_at'],
  'approval.renewed': ['approval.requested', 'approval_id', 'instead_of', 'expires_at'],
  'approval.escalated': ['approval.escalated', 'approval_id', 'roles', 'users', 'expires_at'],
  'approval.granted': ['approval.granted', 'approval_id', 'user', 'complete', 'void'],
  'approval.rejected': ['approval.rejected', 'approval_id', 'user'],
  'approval.expired': ['approval.expired', 'approval_id', 'code'],
  'execution.lost': ['execution.lost', 'code', 'quiet_at'],
  'pause.set': ['pause.set', 'pause_id', 'scope', 'reason', 'until'],
  'pause.lifted': ['pause.lifted', 'pause_id'],
  'policy.rejected': ['policy.rejected', 'in_force'],
  'policy.proposed': [
    'policy.proposed',
    'proposal',
    'version',
    'instead_of',
    'how',
    'proposed_by',
    'why',
    'expires_at',
  ],
  'allowance.given': ['allowance.given', 'allowance_id', 'approval_id', 'given_by', 'times', 'expires_at'],
};

interface Cursor {
  readonly epoch: number;
  readonly seq: number;
}
const BEGINNING: Cursor = { epoch: 0, seq: 0 };

/** Events of one look at a ledger, and those of it that one step takes into the outbox. */
const EVENTS_AT_ONCE = 200;
const NOTIFICATIONS_AT_ONCE = 20;
/** A cursor that passed so many events that nobody is told of is written all the same. */
const UNWRITTEN = 5_000;

const cursorRows = repository(jsonKind<Cursor>('notified_to', () => []));
const senderRows = repository(jsonKind<{ readonly owner: string; readonly until: number }>('notifier', () => []));

/** Finds in the ledgers of all workspaces what is to be told. */
class Followed {
  readonly #from: Readable<RowStore>;
  readonly #runner: StepRunner;
  readonly #installId: () => string;
  readonly #workspaces: () => Promise<readonly string[]>;
  readonly #outbox: Outbox;
  /** Of whoever has the sending: where it is in each ledger, and what of that is written. */
  readonly #reached = new Map<string, { at: Cursor; written: Cursor }>();

  constructor(
    from: Readable<RowStore>,
    runner: StepRunner,
    installId: () => string,
    workspaces: () => Promise<readonly string[]>,
    outbox: Outbox,
  ) {
    this.#from = from;
    this.#runner = runner;
    this.#installId = installId;
    this.#workspaces = workspaces;
    this.#outbox = outbox;
  }

  /** Reads anew how far it was. */
  forget(): void {
    this.#reached.clear();
  }

  /** Nobody was told before: what is in the ledgers is no news. A workspace that comes later is followed from its start. */
  async beginAtEnds(): Promise<void> {
    for (const workspace of await this.#ledgers()) {
      const { epoch, seq } = await this.#newestOf(workspace);
      await this.#outbox.run((draft) => {
        const there = cursorRows.get(draft, workspace) ?? BEGINNING;
        // Another gateway may have begun, and gone on, since the ledger was read.
        const isLater = epoch > there.epoch || (epoch === there.epoch && seq > there.seq);
        if (isLater) cursorRows.put(draft, workspace, { epoch, seq });
      });
    }
  }

  async followAll(subscriptions: readonly Subscription[]): Promise<boolean> {
    let hasMore = false;
    const faults: Error[] = [];
    // Of a Cluster one part may be away: what happens in the others is told.
    for (const workspace of await this.#ledgers())
      try {
        hasMore = (await this.#follow(workspace, subscriptions)) || hasMore;
      } catch (error) {
        faults.push(error instanceof Error ? error : new Error('a ledger cannot be read', { cause: error }));
      }
    const [fault] = faults;
    if (fault !== undefined) throw fault;
    return hasMore;
  }

  async #newestOf(workspace: string): Promise<Cursor> {
    const [newest] = await this.#from.turns.run(() =>
      this.#from.store.ledger({ workspace, about: null, order: 'down', after: null, limit: 1 }),
    );
    return newest ?? BEGINNING;
  }

  async #ledgers(): Promise<readonly string[]> {
    return [INSTALLATION, ...(await this.#workspaces())];
  }

  /** In the new epoch after a loss that was accepted, events stand where others stood: it goes on after the last known. */
  async #beforeLoss(workspace: string, cursor: Cursor): Promise<Cursor> {
    let after: number | null = null;
    for (;;) {
      const before: number | null = after;
      const slice: readonly LedgerEntry[] = await this.#from.turns.run(() =>
        this.#from.store.ledger({ workspace, about: null, order: 'down', after: before, limit: EVENTS_AT_ONCE }),
      );
      const known = slice.find(({ epoch, seq }) => epoch <= cursor.epoch && seq <= cursor.seq);
      if (known !== undefined) return { epoch: known.epoch, seq: known.seq };
      const last = slice.at(-1);
      if (last === undefined) return BEGINNING;
      after = last.seq;
    }
  }

  /** What is new in one ledger. @returns whether there may be more */
  async #follow(workspace: string, subscriptions: readonly Subscription[]): Promise<boolean> {
    const known = this.#reached.get(workspace) ?? (await this.#readCursor(workspace));
    this.#reached.set(workspace, known);
    const { at } = known;
    // The last one that is known is read with what is new: it shows that they belong together.
    const after = at.seq === 0 ? null : at.seq - 1;
    const slice = await this.#from.turns.run(() =>
      this.#from.store.ledger({ workspace, about: null, order: 'up', after, limit: EVENTS_AT_ONCE }),
    );
    const [first] = slice;
    if (at.seq > 0 && (first?.seq !== at.seq || first.epoch !== at.epoch)) {
      known.at = await this.#beforeLoss(workspace, at);
      return true;
    }
    const notifications: Notification[] = [];
    let to = at;
    for (const entry of at.seq === 0 ? slice : slice.slice(1)) {
      const notification = this.#notificationOf(workspace, entry);
      if (notification !== null && subscriptions.some((one) => isWanted(one, notification)))
        notifications.push(notification);
      to = { epoch: entry.epoch, seq: entry.seq };
      if (notifications.length === NOTIFICATIONS_AT_ONCE) break;
    }
    if (notifications.length > 0 || to.seq - known.written.seq >= UNWRITTEN)
      await this.#takeIn(workspace, known.written, to, notifications, subscriptions);
    else known.at = to;
    return to.seq !== at.seq && (slice.length === EVENTS_AT_ONCE || notifications.length === NOTIFICATIONS_AT_ONCE);
  }

  async #readCursor(workspace: string): Promise<{ at: Cursor; written: Cursor }> {
    const written = (await readRecord(this.#runner, cursorRows, INSTALLATION, workspace)) ?? BEGINNING;
    return { at: written, written };
  }

  /** The cursor and what it brings are one change: each event is taken in once. */
  async #takeIn(
    workspace: string,
    from: Cursor,
    to: Cursor,
    notifications: readonly Notification[],
    subscriptions: readonly Subscription[],
  ): Promise<void> {
    const added = await this.#outbox.run((draft) => {
      const there = cursorRows.get(draft, workspace) ?? BEGINNING;
      if (there.seq !== from.seq || there.epoch !== from.epoch) return null;
      cursorRows.put(draft, workspace, to);
      return notifications.flatMap((notification) => this.#outbox.put(draft, notification, subscriptions));
    });
    if (added === null) return void this.#reached.delete(workspace);
    this.#reached.set(workspace, { at: to, written: to });
    this.#outbox.added(added);
  }

  #notificationOf(workspace: string, { epoch, seq, at, about, text }: LedgerEntry): Notification | null {
    const notified = NOTIFIED_TEXTS.get(text.slice(0, text.indexOf(',')));
    if (notified === undefined) return null;
    const [event, ...members] = notified;
    const { data } = eventOf(about, text);
    return {
      id: notificationId('msg', this.#installId(), workspace, epoch, seq),
      event,
      workspace,
      at,
      effectId: about,
      data: membersOf(data, members),
    };
  }
}

/** The outbox, in the installation. @param workspaces those in which something was written */
export function createNotifications(
  readable: Readable<RowStore>,
  runner: StepRunner,
  installId: () => string,
  workspaces: () => Promise<readonly string[]>,
): NotificationStore {
  const outbox = new Outbox(readable, runner, installId);
  const followed = new Followed(readable, runner, installId, workspaces, outbox);
  return {
    takeSending: (owner, ms) =>
      outbox.run((draft) => {
        const there = senderRows.get(draft, ONLY);
        if (there !== null && there.owner !== owner && there.until > draft.now) return false;
        senderRows.put(draft, ONLY, { owner, until: draft.now + ms });
        return true;
      }),
    leaveSending: (owner) =>
      outbox.run((draft) => {
        if (senderRows.get(draft, ONLY)?.owner === owner) senderRows.put(draft, ONLY, null);
      }),
    async subscribe(subscriptions) {
      await outbox.subscribe(subscriptions, () => followed.beginAtEnds());
      followed.forget();
    },
    followLedgers: (subscriptions) => followed.followAll(subscriptions),
    forgetDeliveries: () => outbox.forget(),
    nextDelivery: (receiver) => outbox.next(receiver),
    settleDelivery: (before, after) => outbox.settle(before, after),
    tellOnce: (...notice) => outbox.tellOnce(...notice),
    untell: (key) => outbox.untell(key),
    deliveries: (state, page) => outbox.page(state, page),
    deadDeliveries: (most) => outbox.dead(most),
    resend: (id, receivers) => outbox.resend(id, receivers),
  };
}

/** The beginnings of the texts of the ledger that are told: the others are not even read as JSON. */
const NOTIFIED_TEXTS = new Map(Object.entries(NOTIFIED).map(([kind, notified]) => [`["${kind}"`, notified]));

function membersOf(data: JsonObject, members: readonly string[]): JsonObject {
  return Object.fromEntries(
    members.flatMap((member) => {
      const value = data[member];
      return value === undefined ? [] : [[member, value] as const];
    }),
  );
}
