import { createHash } from 'node:crypto';
import type { BudgetRow } from '../effects/model/budget.ts';
import { INSTALLATION } from '../effects/model/ledger.ts';
import { isWanted, type Notification, type Receiver } from '../effects/model/notification.ts';
import type { EffectStore } from '../effects/store.ts';

/** How often budgets are looked at, ms. */
const BUDGETS_MS = 15_000;
/** So many are told of in one look, so that it ends before the sending is lost; the next one tells the rest. */
const MOST_BUDGETS = 1_000;
/** What still holds after so long is told again, ms. */
const TOLD_AGAIN_MS = 86_400_000;
/** So much that this gateway saw waits for the store, and so much that was told is remembered here. */
const MOST_PENDING = 1_000;
const MOST_KNOWN = 100_000;

type Told = Omit<Notification, 'id' | 'at'>;

/** What people are told of that stands in no ledger. */
export interface Observed {
  quarantined(tool: string, state: 'changed' | 'gone'): void;
  released(tool: string): void;
  /** Takes into the outbox what any gateway has seen. */
  hand(receivers: readonly Receiver[]): Promise<void>;
  /** Looks at the budgets, and at what retention leaves. For the one gateway that sends. */
  look(receivers: readonly Receiver[]): Promise<void>;
}

export function createObserved(parts: {
  readonly store: Pick<EffectStore, 'now' | 'turns' | 'budgets' | 'tellOnce' | 'untell'>;
  readonly workspaces: () => readonly string[];
  /** From this share of its limit on a budget is near it, percent. */
  readonly nearPercent: () => number;
  /** Effects past their age that stay because nobody knows what became of them. */
  readonly unsettled: () => number;
}): Observed {
  const { store } = parts;
  /** By key, in order; `null`: it is over. */
  const pending = new Map<string, Told | null>();
  /** Until when it need not be told again, ms. */
  const known = new Map<string, number>();
  let knownTo: readonly Receiver[] = [];
  let budgetsAt = 0;

  /** Receivers that are others have been told of nothing yet. */
  function knowFor(receivers: readonly Receiver[]): void {
    if (knownTo !== receivers) known.clear();
    knownTo = receivers;
  }

  const isKnown = (key: string): boolean => (known.get(key) ?? 0) > store.now();

  async function tell(key: string, until: number, told: Told, receivers: readonly Receiver[]): Promise<void> {
    knowFor(receivers);
    if (isKnown(key)) return;
    await store.tellOnce(key, until, { ...told, at: store.now() }, receivers);
    if (known.size >= MOST_KNOWN) known.clear();
    known.set(key, until);
  }

  function later(key: string, told: Told | null): void {
    pending.delete(key);
    if (pending.size < MOST_PENDING) pending.set(key, told);
  }

  /** What is to be told of a row; `null`: it is not near its limit, or was told. */
  function nearLimit(workspace: string, row: BudgetRow) {
    const { budget, unit, bucket, window, limit, spent, held, resetsAt } = row;
    if (limit <= 0 || (spent + held) * 100 < limit * parts.nearPercent()) return null;
    const about = createHash('sha256').update(JSON.stringify([workspace, budget, bucket, window, limit]));
    const key = `budget ${about.digest('hex')}`;
    if (isKnown(key)) return null;
    const until = resetsAt ?? store.now() + TOLD_AGAIN_MS;
    const data = { budget, unit, limit, spent, held, resets_at: resetsAt === null ? null : timeOf(resetsAt) };
    return { key, until, told: { event: 'budget.near_limit', workspace, effectId: null, data } as const };
  }

  async function lookAtBudgets(receivers: readonly Receiver[]): Promise<void> {
    knowFor(receivers);
    let left = MOST_BUDGETS;
    for (const workspace of parts.workspaces()) {
      if (!receivers.some((one) => isWanted(one, { event: 'budget.near_limit', workspace }))) continue;
      // A budget by a param has as many rows as calls have values.
      const rows = await store.turns.map(await store.budgets(workspace), (row) => nearLimit(workspace, row));
      for (const row of rows.filter((near) => near !== null).slice(0, left)) {
        left -= 1;
        await tell(row.key, row.until, row.told, receivers);
      }
    }
  }

  return {
    quarantined: (tool, state) =>
      later(`tool ${tool}`, {
        event: 'tool.quarantined',
        workspace: INSTALLATION,
        effectId: null,
        data: { tool, state },
      }),
    released: (tool) => later(`tool ${tool}`, null),
    async hand(receivers) {
      for (const [key, told] of pending) {
        if (told === null) {
          known.delete(key);
          await store.untell(key);
        } else await tell(key, store.now() + TOLD_AGAIN_MS, told, receivers);
        if (pending.get(key) === told) pending.delete(key);
      }
    },
    async look(receivers) {
      const unsettled = parts.unsettled();
      if (unsettled > 0)
        await tell(
          'retention',
          store.now() + TOLD_AGAIN_MS,
          { event: 'retention.stalled', workspace: INSTALLATION, effectId: null, data: { effects: unsettled } },
          receivers,
        );
      if (performance.now() < budgetsAt) return;
      budgetsAt = performance.now() + BUDGETS_MS;
      await lookAtBudgets(receivers);
    },
  };
}

function timeOf(at: number): string {
  return new Date(at).toISOString();
}
