import { timeToWire } from '../effects/wire/time.ts';
import { createHash } from 'node:crypto';
import type { BudgetRow } from '../effects/model/effect.ts';
import { currencyOf, currencyOfBucket } from '../effects/model/money.ts';
import { INSTALLATION } from '../effects/model/ledger.ts';
import { isWanted, type Notification, type Receiver } from '../effects/model/notification.ts';
import type { EffectStore } from '../effects/store.ts';

/** How often budgets are looked at, ms. */
const BUDGETS_MS = 15_000;
/** So many are told of in one look, so that it ends before the sending is lost; the next one tells the rest. */
const MOST_BUDGETS = 1_000;
/** What still holds after so long is told again, ms. */
const AGAIN_MS = 86_400_000;
/** So much that this gateway saw waits for the store, and so much that was told is remembered here. */
const MOST_PENDING = 1_000;
const MOST_KNOWN = 100_000;

type Observation = Omit<Notification, 'id' | 'at'>;

/** What people are told of that stands in no ledger. */
export class Observed {
  readonly #parts;
  readonly #store;
  /** By key, in order; `null`: it is over. */
  readonly #pending = new Map<string, Observation | null>();
  /** Until when it need not be told again, ms. */
  readonly #known = new Map<string, number>();
  #knownTo: readonly Receiver[] = [];
  #budgetsAt = 0;

  constructor(parts: {
    readonly store: Pick<EffectStore, 'now' | 'turns' | 'budgets' | 'tellOnce' | 'untell'>;
    readonly workspaces: () => readonly string[];
    /** The limit that policy has now: a row keeps the one of its last call. */
    readonly limitOf: (row: BudgetRow) => number;
    /** From this share of its limit on a budget is near it, percent. */
    readonly nearPercent: () => number;
    /** Effects past their age that stay because nobody knows what became of them. */
    readonly unsettled: () => number;
  }) {
    this.#parts = parts;
    this.#store = parts.store;
  }

  quarantined(tool: string, state: 'changed' | 'gone'): void {
    this.#later(`tool ${tool}`, {
      event: 'tool.quarantined',
      workspace: INSTALLATION,
      effectId: null,
      data: { tool, state },
    });
  }

  released(tool: string): void {
    this.#later(`tool ${tool}`, null);
  }

  /** Takes into the outbox what any gateway has seen. */
  async hand(receivers: readonly Receiver[]): Promise<void> {
    for (const [key, observation] of this.#pending) {
      if (observation === null) {
        this.#known.delete(key);
        await this.#store.untell(key);
      } else await this.#tell(key, this.#store.now() + AGAIN_MS, observation, receivers);
      if (this.#pending.get(key) === observation) this.#pending.delete(key);
    }
  }

  /** Looks at the budgets, and at what retention leaves. For the one gateway that sends. */
  async inspect(receivers: readonly Receiver[]): Promise<void> {
    const unsettled = this.#parts.unsettled();
    if (unsettled > 0)
      await this.#tell(
        'retention',
        this.#store.now() + AGAIN_MS,
        { event: 'retention.stalled', workspace: INSTALLATION, effectId: null, data: { effects: unsettled } },
        receivers,
      );
    if (performance.now() < this.#budgetsAt) return;
    this.#budgetsAt = performance.now() + BUDGETS_MS;
    await this.#inspectBudgets(receivers);
  }

  /** Receivers that are others have been told of nothing yet. */
  #knowFor(receivers: readonly Receiver[]): void {
    if (this.#knownTo !== receivers) this.#known.clear();
    this.#knownTo = receivers;
  }

  #isKnown(key: string): boolean {
    return (this.#known.get(key) ?? 0) > this.#store.now();
  }

  async #tell(key: string, until: number, observation: Observation, receivers: readonly Receiver[]): Promise<void> {
    this.#knowFor(receivers);
    if (this.#isKnown(key)) return;
    await this.#store.tellOnce(key, until, { ...observation, at: this.#store.now() }, receivers);
    if (this.#known.size >= MOST_KNOWN) this.#known.clear();
    this.#known.set(key, until);
  }

  #later(key: string, observation: Observation | null): void {
    this.#pending.delete(key);
    if (this.#pending.size < MOST_PENDING) this.#pending.set(key, observation);
  }

  /** What is to be told of a row; `null`: it is not near its limit, or was told. */
  #nearLimit(workspace: string, row: BudgetRow) {
    const { budget, unit, bucket, window, spent, held, resetsAt } = row;
    const limit = this.#parts.limitOf(row);
    if (limit <= 0 || (spent + held) * 100 < limit * this.#parts.nearPercent()) return null;
    const about = createHash('sha256').update(JSON.stringify([workspace, budget, bucket, window, limit]));
    const key = `budget ${about.digest('hex')}`;
    if (this.#isKnown(key)) return null;
    const until = resetsAt ?? this.#store.now() + AGAIN_MS;
    const currency = currencyOf(unit, currencyOfBucket(bucket));
    const resets = resetsAt === null ? null : timeToWire(resetsAt);
    const data = { budget, unit, currency, limit, spent, held, resets_at: resets };
    return { key, until, observation: { event: 'budget.near_limit', workspace, effectId: null, data } as const };
  }

  async #inspectBudgets(receivers: readonly Receiver[]): Promise<void> {
    this.#knowFor(receivers);
    let left = MOST_BUDGETS;
    for (const workspace of this.#parts.workspaces()) {
      if (!receivers.some((one) => isWanted(one, { event: 'budget.near_limit', workspace }))) continue;
      // A budget by a param has as many rows as calls have values.
      const rows = await this.#store.turns.map(await this.#store.budgets(workspace), (row) =>
        this.#nearLimit(workspace, row),
      );
      for (const row of rows.filter((near) => near !== null).slice(0, left)) {
        left -= 1;
        await this.#tell(row.key, row.until, row.observation, receivers);
      }
    }
  }
}
