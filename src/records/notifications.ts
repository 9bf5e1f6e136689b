import { createHash } from 'node:crypto';
import { INSTALLATION, type LedgerKind } from '../effects/model/ledger.ts';
import {
  type Delivery,
  isWanted,
  type Notification,
  type NotificationEvent,
  type Subscription,
} from '../effects/model/notification.ts';
import type { NotificationStore } from '../effects/notification-store.ts';
import { PAGE_BYTES } from '../effects/store.ts';
import type { JsonObject } from '../json/value.ts';
import type { LedgerEntry } from '../stores/port.ts';
import { ONLY } from './control-rows.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, repository } from './kind.ts';
import { entries, firstOf, type Readable } from './lists.ts';
import { pageOf } from './pages.ts';
import { readRecord, type StepRunner } from './runner.ts';
import { eventOf } from './view.ts';

/** Which events of the ledger are told, as what, and which members of their data. */
const TOLD: Partial<Record<LedgerKind, readonly [event: NotificationEvent, ...members: string[]]>> = {
  'approval.requested': ['approval.requested', 'approval_id', 'expires_at'],
  'approval.renewed': ['approval.requested', 'approval_id', 'expires_at'],
  'approval.granted': ['approval.granted', 'approval_id', 'user', 'complete'],
  'approval.rejected': ['approval.rejected', 'approval_id', 'user'],
  'approval.expired': ['approval.expired', 'approval_id', 'code'],
  'execution.lost': ['execution.lost', 'code', 'quiet_at'],
  'pause.set': ['pause.set', 'pause_id', 'scope', 'reason', 'until'],
  'pause.lifted': ['pause.lifted', 'pause_id'],
  'policy.rejected': ['policy.rejected', 'in_force'],
};

/** How far a ledger was read. */
interface Cursor {
  readonly epoch: number;
  readonly seq: number;
}
const BEGINNING: Cursor = { epoch: 0, seq: 0 };

/** Events of one look at a ledger, and those of it that one step takes into the outbox. */
const EVENTS_AT_ONCE = 200;
const TOLD_AT_ONCE = 20;
/** A cursor that passed so many events that nobody is told of is written all the same. */
const UNWRITTEN = 5_000;
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
const cursorRows = repository(jsonKind<Cursor>('notified_to', () => []));
/** Who is told, by their ids: since when, ms. */
const subscriberRows = repository(jsonKind<Readonly<Record<string, number>>>('notified', () => []));
const senderRows = repository(jsonKind<{ readonly owner: string; readonly until: number }>('notifier', () => []));
const TOLD_ONCE = 'told';
const toldRows = repository(
  jsonKind<{ readonly until: number }>('told', ({ until }) => [{ list: TOLD_ONCE, at: until }]),
);

const idOf = (prefix: 'msg' | 'dlv', ...parts: readonly (string | number)[]): string =>
  `${prefix}_${createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32)}`;

/** The outbox, in the installation. @param workspaces those in which something was written */
export function createNotifications(
  readable: Readable,
  runner: StepRunner,
  installId: () => string,
  workspaces: () => Promise<readonly string[]>,
): NotificationStore {
  const { store, turns } = readable;
  /** Of whoever has the sending: where it is in each ledger, what of that is written, and how many wait for whom. */
  const reached = new Map<string, { at: Cursor; written: Cursor }>();
  const waiting = new Map<string, number>();
  let since: Readonly<Record<string, number>> = {};

  const run = async <Result>(step: (draft: Draft) => Result): Promise<Result> =>
    (await runner.run(INSTALLATION, step)).result;

  async function newestOf(workspace: string): Promise<Cursor> {
    const [newest] = await turns.run(() =>
      store.ledger({ workspace, about: null, order: 'down', after: null, limit: 1 }),
    );
    return newest ?? BEGINNING;
  }

  async function ledgers(): Promise<readonly string[]> {
    return [INSTALLATION, ...(await workspaces())];
  }

  /** Nobody was told before: what is in the ledgers is no news. A workspace that comes later is followed from its start. */
  async function beginAtEnds(): Promise<void> {
    for (const workspace of await ledgers()) {
      const { epoch, seq } = await newestOf(workspace);
      await run((draft) => {
        const there = cursorRows.get(draft, workspace) ?? BEGINNING;
        // Another gateway may have begun, and gone on, since the ledger was read.
        if (epoch > there.epoch || seq > there.seq) cursorRows.put(draft, workspace, { epoch, seq });
      });
    }
  }

  /** What waits for a receiver that is gone. */
  async function bury(receiver: string): Promise<void> {
    const asked = { workspace: INSTALLATION, list: waitingFor(receiver), kind: deliveryRows.kind };
    for (;;) {
      const found = await firstOf(store, asked, AT_ONCE);
      for (const { id } of found)
        await run((draft) => {
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

  async function countWaiting(receiver: string): Promise<number> {
    let count = 0;
    const asked = { workspace: INSTALLATION, list: waitingFor(receiver), kind: deliveryRows.kind };
    for await (const _ of entries(store, asked)) {
      count += 1;
      if (count >= MOST_WAITING) break;
    }
    return count;
  }

  /** In the new epoch after a loss that was accepted, events stand where others stood: it goes on after the last known. */
  async function beforeLoss(workspace: string, cursor: Cursor): Promise<Cursor> {
    let after: number | null = null;
    for (;;) {
      const before: number | null = after;
      const slice: readonly LedgerEntry[] = await turns.run(() =>
        store.ledger({ workspace, about: null, order: 'down', after: before, limit: EVENTS_AT_ONCE }),
      );
      const known = slice.find(({ epoch, seq }) => epoch <= cursor.epoch && seq <= cursor.seq);
      if (known !== undefined) return { epoch: known.epoch, seq: known.seq };
      const last = slice.at(-1);
      if (last === undefined) return BEGINNING;
      after = last.seq;
    }
  }

  /** What is new in one ledger. @returns whether there may be more */
  async function follow(workspace: string, subscriptions: readonly Subscription[]): Promise<boolean> {
    const known = reached.get(workspace) ?? (await readCursor(workspace));
    reached.set(workspace, known);
    const { at } = known;
    // The last one that is known is read with what is new: it shows that they belong together.
    const after = at.seq === 0 ? null : at.seq - 1;
    const slice = await turns.run(() =>
      store.ledger({ workspace, about: null, order: 'up', after, limit: EVENTS_AT_ONCE }),
    );
    const [first] = slice;
    if (at.seq > 0 && (first?.seq !== at.seq || first.epoch !== at.epoch)) {
      known.at = await beforeLoss(workspace, at);
      return true;
    }
    const told: Notification[] = [];
    let to = at;
    for (const entry of at.seq === 0 ? slice : slice.slice(1)) {
      const notification = toldOf(workspace, entry);
      if (notification !== null && subscriptions.some((one) => isWanted(one, notification))) told.push(notification);
      to = { epoch: entry.epoch, seq: entry.seq };
      if (told.length === TOLD_AT_ONCE) break;
    }
    if (told.length > 0 || to.seq - known.written.seq >= UNWRITTEN)
      await takeIn(workspace, known.written, to, told, subscriptions);
    else known.at = to;
    return to.seq !== at.seq && (slice.length === EVENTS_AT_ONCE || told.length === TOLD_AT_ONCE);
  }

  async function readCursor(workspace: string): Promise<{ at: Cursor; written: Cursor }> {
    const written = (await readRecord(runner, cursorRows, INSTALLATION, workspace)) ?? BEGINNING;
    return { at: written, written };
  }

  /** The cursor and what it brings are one change: each event is taken in once. */
  async function takeIn(
    workspace: string,
    from: Cursor,
    to: Cursor,
    told: readonly Notification[],
    subscriptions: readonly Subscription[],
  ): Promise<void> {
    const added = await run((draft) => {
      const there = cursorRows.get(draft, workspace) ?? BEGINNING;
      if (there.seq !== from.seq || there.epoch !== from.epoch) return null;
      cursorRows.put(draft, workspace, to);
      return told.flatMap((notification) => put(draft, notification, subscriptions));
    });
    if (added === null) return void reached.delete(workspace);
    reached.set(workspace, { at: to, written: to });
    for (const receiver of added) waiting.set(receiver, (waiting.get(receiver) ?? 0) + 1);
  }

  /** @returns the receivers for whom one more waits */
  function put(draft: Draft, notification: Notification, subscriptions: readonly Subscription[]): readonly string[] {
    return subscriptions.flatMap((subscription) => {
      const { id: receiver, name: receiverName, retryForMs } = subscription;
      if (!isWanted(subscription, notification) || notification.at < (since[receiver] ?? 0)) return [];
      const id = idOf('dlv', notification.id, receiver);
      if (deliveryRows.get(draft, id, MOSTLY_ABSENT) !== null) return [];
      const isTooMany = (waiting.get(receiver) ?? 0) >= MOST_WAITING;
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

  function toldOf(workspace: string, { epoch, seq, at, about, text }: LedgerEntry): Notification | null {
    const told = TOLD_TEXTS.get(text.slice(0, text.indexOf(',')));
    if (told === undefined) return null;
    const [event, ...members] = told;
    const { data } = eventOf(about, text);
    return {
      id: idOf('msg', installId(), workspace, epoch, seq),
      event,
      workspace,
      at,
      effectId: about,
      data: membersOf(data, members),
    };
  }

  return {
    takeSending: (owner, ms) =>
      run((draft) => {
        const there = senderRows.get(draft, ONLY);
        if (there !== null && there.owner !== owner && there.until > draft.now) return false;
        senderRows.put(draft, ONLY, { owner, until: draft.now + ms });
        return true;
      }),
    leaveSending: (owner) =>
      run((draft) => {
        if (senderRows.get(draft, ONLY)?.owner === owner) senderRows.put(draft, ONLY, null);
      }),
    async subscribe(subscriptions) {
      const ids = new Set(subscriptions.map(({ id }) => id));
      const before = (await readRecord(runner, subscriberRows, INSTALLATION, ONLY)) ?? {};
      for (const id of Object.keys(before)) if (!ids.has(id)) await bury(id);
      if (ids.size > 0 && Object.keys(before).length === 0) await beginAtEnds();
      since = await run((draft) => {
        const there = subscriberRows.get(draft, ONLY);
        const next = Object.fromEntries([...ids].map((id) => [id, there?.[id] ?? draft.now] as const));
        if (JSON.stringify(next) !== JSON.stringify(there ?? {})) subscriberRows.put(draft, ONLY, next);
        return next;
      });
      reached.clear();
      for (const id of ids) waiting.set(id, await countWaiting(id));
    },
    async followLedgers(subscriptions) {
      let hasMore = false;
      const faults: Error[] = [];
      // Of a Cluster one part may be away: what happens in the others is told.
      for (const workspace of await ledgers())
        try {
          hasMore = (await follow(workspace, subscriptions)) || hasMore;
        } catch (error) {
          faults.push(error instanceof Error ? error : new Error('a ledger cannot be read', { cause: error }));
        }
      const [fault] = faults;
      if (fault !== undefined) throw fault;
      return hasMore;
    },
    async forgetDeliveries() {
      const to = store.now();
      const asked = { workspace: INSTALLATION, to };
      const over = await firstOf(store, { ...asked, list: OVER, kind: deliveryRows.kind }, AT_ONCE);
      for (const { id } of over)
        await run((draft) => {
          const state = deliveryRows.get(draft, id)?.state.kind ?? 'waiting';
          if (state !== 'waiting') deliveryRows.put(draft, id, null);
        });
      const told = await firstOf(store, { ...asked, list: TOLD_ONCE, kind: toldRows.kind }, AT_ONCE);
      for (const { id } of told)
        await run((draft) => {
          const there = toldRows.get(draft, id);
          if (there !== null && there.until <= draft.now) toldRows.put(draft, id, null);
        });
      return over.length === AT_ONCE || told.length === AT_ONCE;
    },
    async nextDelivery(receiver) {
      const asked = { workspace: INSTALLATION, list: waitingFor(receiver), kind: deliveryRows.kind };
      const [first] = await firstOf(store, asked, 1);
      return first === undefined ? null : deliveryRows.of(first.row);
    },
    async settleDelivery(before, after) {
      const isOver = await run((draft) => {
        const there = deliveryRows.get(draft, before.id);
        if (there === null || there.state.kind !== 'waiting' || there.attempts !== before.attempts) return true;
        deliveryRows.put(draft, before.id, after);
        return after.state.kind !== 'waiting';
      });
      const { receiver } = before;
      if (isOver) waiting.set(receiver, Math.max(0, (waiting.get(receiver) ?? 0) - 1));
    },

    async tellOnce(key, until, told, subscriptions) {
      if (!subscriptions.some((one) => isWanted(one, told))) return;
      const added = await run((draft) => {
        const there = toldRows.get(draft, key);
        if (there !== null && there.until > draft.now) return [];
        toldRows.put(draft, key, { until });
        return put(draft, { ...told, id: idOf('msg', installId(), key, told.at) }, subscriptions);
      });
      for (const receiver of added) waiting.set(receiver, (waiting.get(receiver) ?? 0) + 1);
    },
    untell: (key) =>
      run((draft) => {
        if (toldRows.get(draft, key) !== null) toldRows.put(draft, key, null);
      }),

    deliveries(state, { limit, cursor }) {
      const list = state === 'dead' ? DEAD : DELIVERIES;
      const most = { items: limit, characters: PAGE_BYTES };
      return pageOf(readable, { workspace: INSTALLATION, list, kind: deliveryRows.kind }, cursor, most, (row) => {
        const delivery = deliveryRows.of(row);
        return state === null || delivery.state.kind === state ? delivery : null;
      });
    },
    async deadDeliveries(most) {
      return (await firstOf(store, { workspace: INSTALLATION, list: DEAD, kind: deliveryRows.kind }, most)).length;
    },
    resend: (id, receivers) =>
      run((draft) => {
        const delivery = deliveryRows.get(draft, id);
        if (delivery === null) return null;
        if (delivery.state.kind === 'waiting') return { kind: 'waits', delivery };
        if (!receivers.includes(delivery.receiver)) return { kind: 'no_receiver', delivery };
        const again: Delivery = { ...delivery, triedFrom: draft.now, state: { kind: 'waiting', dueAt: draft.now } };
        deliveryRows.put(draft, id, again);
        return { kind: 'resent', delivery: again };
      }),
  };
}

/** The beginnings of the texts of the ledger that are told: the others are not even read as JSON. */
const TOLD_TEXTS = new Map(Object.entries(TOLD).map(([kind, told]) => [`["${kind}"`, told]));

function membersOf(data: JsonObject, members: readonly string[]): JsonObject {
  return Object.fromEntries(
    members.flatMap((member) => {
      const value = data[member];
      return value === undefined ? [] : [[member, value] as const];
    }),
  );
}
