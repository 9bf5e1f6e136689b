import { currencyOf, moneyText } from '../../src/effects/model/money.ts';
import type { Approval, Bounds, Json } from './api.ts';

/* Amounts by the same rules and words as the gateway's; here counts are written as the reader's language does. */

export * from '../../src/effects/model/money.ts';

const NUMBER = new Intl.NumberFormat();

/** An amount of a budget: money as money where its currency is known. */
export function amountText(amount: number, unit: string, currency: Json | undefined = null): string {
  const money = moneyText(amount, currencyOf(unit, currency));
  return money ?? `${NUMBER.format(amount)} ${unit}${amount === 1 || unit.endsWith('s') ? '' : 's'}`;
}

/** What is left of a budget, of its limit; nothing where that is not known. */
export function leftText(
  { unit, limit, spent, held = 0 }: Approval['costs'][number],
  currency: Json | undefined,
): string {
  if (limit === undefined || spent === undefined) return '';
  const text = (of: number): string => amountText(of, unit, currency);
  return `${text(Math.max(0, limit - spent - held))} left of ${text(limit)}`;
}

/** What a param may be made, in words. @param currency as money of it; `null`: as it is */
export function boundsText(
  { min, max, one_of: words, max_length: longest }: Bounds,
  asked: Json,
  currency: string | null,
): string {
  if (words !== undefined) return 'one of these';
  if (longest !== undefined) return `at most ${longest} characters`;
  const side = (word: string, bound: number | 'asked' | undefined): readonly string[] => {
    if (bound === undefined) return [];
    const value = bound === 'asked' ? asked : bound;
    return [`${word} ${moneyText(value, currency) ?? JSON.stringify(value)}`];
  };
  return [...side('at least', min), ...side('at most', max)].join(', ');
}
