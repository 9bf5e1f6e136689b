import type { EffectRecord, Hold } from '../model/effect.ts';
import type { LedgerEvent } from '../model/ledger.ts';
import type { EffectStore } from '../store.ts';
import { calendarOf, moneyChanges, rowName } from './money-events.ts';

/** How a row of a budget stood, by the ledger. */
export interface Standing {
  /** ms; just before, or just after, the event of then. */
  readonly at: number;
  readonly spent: number;
  readonly held: number;
}

/** What an effect took of a row of a budget, and how the row stood around that. */
export interface Taken {
  readonly hold: Hold;
  /** What of it is spent; more than the hold where the call cost more. */
  readonly spent: number;
  readonly around:
    | { readonly kind: 'known'; readonly before: Standing; readonly after: Standing }
    /** `rolling`: what has left the window is written nowhere. `too_many`: more happened in the window than is read. */
    | { readonly kind: 'unknown'; readonly why: 'rolling' | 'too_many' };
}

const EVENTS_A_PAGE = 500;
/** Pages that are read for one effect. Each looks at 2,000 events of the ledger at most. */
const MOST_PAGES = 8;
/** The window is chosen by the clock of a gateway, and the event has that of the store. */
const CLOCKS_MS = 60_000;

/**
 * What an effect took of budgets, and how these stood before and after, computed from the ledger as `svc fsck` does.
 * @throws StoreUnavailable
 */
export async function takenOfBudgets(
  store: Pick<EffectStore, 'ledgerPage'>,
  { workspace, id, holds }: Pick<EffectRecord, 'workspace' | 'id' | 'holds'>,
): Promise<readonly Taken[]> {
  if (holds.length === 0) return [];
  let pages = MOST_PAGES;
  /** Events about budgets of a time, in the order of the ledger; `null`: there are too many. */
  async function eventsOf(since: number | null, until: number | null, effectId?: string) {
    const found: LedgerEvent[] = [];
    let cursor: string | null = null;
    do {
      if (pages === 0) return null;
      pages -= 1;
      const page = await store.ledgerPage(workspace, {
        kind: 'budget',
        effectId,
        since,
        until,
        limit: EVENTS_A_PAGE,
        cursor,
      });
      found.push(...page.items);
      cursor = page.next;
    } while (cursor !== null);
    return found.toReversed();
  }

  const own = (await eventsOf(null, null, id)) ?? [];
  const last = own.at(-1);
  const spans = new Map<number, readonly LedgerEvent[] | null>();
  // The shortest windows first: they are the likeliest to be read to their beginning.
  const starts = [...new Set(holds.map(({ window }) => calendarOf(window)?.start ?? null))]
    .filter((start) => start !== null)
    .toSorted((one, other) => other - one);
  for (const start of starts)
    spans.set(start, await eventsOf(start - CLOCKS_MS, last === undefined ? null : last.at + 1));

  return holds.map((hold): Taken => {
    const ofRow = own.filter((event) => changesRow(event, hold));
    const spent = ofRow.reduce((sum, event) => sum + changeOf(event, hold).spent, 0);
    const start = calendarOf(hold.window)?.start;
    if (start === undefined) return { hold, spent, around: { kind: 'unknown', why: 'rolling' } };
    const events = spans.get(start) ?? null;
    const [first, end] = [ofRow[0], ofRow.at(-1)];
    const from = events?.findIndex((event) => event.id === first?.id) ?? -1;
    const to = events?.findIndex((event) => event.id === end?.id) ?? -1;
    if (events === null || from < 0 || to < 0) return { hold, spent, around: { kind: 'unknown', why: 'too_many' } };
    const before = standingAfter(events.slice(0, from), hold, first?.at ?? 0);
    const after = standingAfter(events.slice(0, to + 1), hold, end?.at ?? 0);
    return { hold, spent, around: { kind: 'known', before, after } };
  });
}

function standingAfter(events: readonly LedgerEvent[], hold: Hold, at: number): Standing {
  let [spent, held] = [0, 0];
  for (const event of events) {
    const { budgets } = event.data;
    if (event.kind === 'budget.reset' && Array.isArray(budgets) && budgets.includes(hold.budget)) spent = 0;
    const change = changeOf(event, hold);
    spent += change.spent;
    held += change.held;
  }
  return { at, spent, held };
}

const changesRow = (event: LedgerEvent, hold: Hold): boolean =>
  moneyChanges(event).some((change) => rowName(change.hold) === rowName(hold));

function changeOf(event: LedgerEvent, hold: Hold): { readonly spent: number; readonly held: number } {
  let [spent, held] = [0, 0];
  for (const change of moneyChanges(event))
    if (rowName(change.hold) === rowName(hold)) {
      spent += change.spent ?? 0;
      held += change.held;
    }
  return { spent, held };
}
