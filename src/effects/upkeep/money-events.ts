import { isJsonObject, type Json } from '../../json/value.ts';
import type { EffectRecord, Hold } from '../model/effect.ts';
import type { LedgerEvent, LedgerKind } from '../model/ledger.ts';

/** How an event changes the rows of its holds: the factor for `held`, and whether the amount is spent. */
interface MoneyMeaning {
  readonly leaves: EffectRecord['holdState'];
  readonly held: 1 | 0 | -1;
  readonly spends: boolean;
}

export const MONEY: Readonly<Partial<Record<LedgerKind, MoneyMeaning>>> = {
  'budget.held': { leaves: 'held', held: 1, spends: false },
  'budget.voided': { leaves: 'voided', held: -1, spends: false },
  'budget.posted': { leaves: 'posted', held: -1, spends: true },
  'budget.overdraft': { leaves: 'posted', held: 0, spends: true },
};

/** Every change that an event makes; of events about no effect, none. */
export function moneyChanges({ kind, effectId, data }: LedgerEvent): readonly {
  readonly hold: Hold;
  readonly held: number;
  /** `null`: it spends nothing, which is another thing than to spend 0. */
  readonly spent: number | null;
}[] {
  const meaning = MONEY[kind];
  if (meaning === undefined || effectId === null) return [];
  return [
    ...holdsOf(data['holds']).map((hold) => ({
      hold,
      held: meaning.held * hold.amount,
      spent: meaning.spends ? (hold.posted ?? hold.amount) : null,
    })),
    ...holdsOf(data['taken_over']).map((hold) => ({ hold, held: -hold.amount, spent: null })),
  ];
}

/** A hold in an event. `posted`: what of it is spent, where that is not the whole. */
type HoldInEvent = Hold & { readonly posted: number | null };

function holdsOf(data: Json | undefined): HoldInEvent[] {
  if (!Array.isArray(data)) return [];
  return data.flatMap((item): HoldInEvent[] => {
    if (!isJsonObject(item)) return [];
    const { budget, unit, bucket, window, amount, posted } = item;
    return typeof budget === 'string' &&
      typeof unit === 'string' &&
      typeof bucket === 'string' &&
      typeof window === 'string' &&
      typeof amount === 'number'
      ? [{ budget, unit, bucket, window, amount, posted: typeof posted === 'number' ? posted : null }]
      : [];
  });
}

export function rowName({ budget, bucket, window }: Pick<Hold, 'budget' | 'bucket' | 'window'>): string {
  return `${budget} ${bucket} ${window}`;
}

/** First and last ms of a calendar window; `null` for rolling ones. The end is exclusive. */
export function calendarOf(window: string): { readonly start: number; readonly end: number } | null {
  const [, start, end] = /^c:(-?\d+):(-?\d+)$/.exec(window) ?? [];
  return start === undefined || end === undefined ? null : { start: Number(start), end: Number(end) };
}
