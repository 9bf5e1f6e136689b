import type { Approval, Bounds, Json, JsonObject } from './api.ts';

/* Amounts: as money where their currency is known. */

const NUMBER = new Intl.NumberFormat();

/** An amount of a budget: money as money where its currency is known. */
export function amountText(amount: number, unit: string, currency: Json | undefined = null): string {
  const known = currencyOf(unit, currency);
  if (known !== null) return moneyText(amount, known);
  return `${NUMBER.format(amount)} ${unit}${amount === 1 || unit.endsWith('s') ? '' : 's'}`;
}

/** The currency whose smallest unit a budget counts, or the one that the call names where it counts cents. */
function currencyOf(unit: string, named: Json | undefined): string | null {
  const own = /^([A-Z]{3})[-_](?:cents?|minor)$/.exec(unit)?.[1];
  return own ?? (/^cents?$/.test(unit) && isCurrency(named) ? named : null);
}

function isCurrency(value: Json | undefined): value is string {
  return typeof value === 'string' && /^[A-Z]{3}$/.test(value);
}

/** @param amount in the smallest unit of the currency */
export function moneyText(amount: number, currency: string): string {
  const format = new Intl.NumberFormat(undefined, { style: 'currency', currency });
  return format.format(amount / 10 ** digitsOf(currency));
}

function digitsOf(currency: string): number {
  return new Intl.NumberFormat('en', { style: 'currency', currency }).resolvedOptions().maximumFractionDigits ?? 2;
}

/** The amount that params name, as money, where they name its currency. */
export function moneyOf(params: JsonObject | undefined): string | null {
  const { amount, currency } = params ?? {};
  return typeof amount === 'number' && Number.isInteger(amount) && isCurrency(currency)
    ? moneyText(amount, currency)
    : null;
}

/**
 * The currency that a param is an amount of: one budget of money takes just its value, and no other param has that value.
 * `null` where nothing says so for certain.
 */
export function currencyOfParam(
  name: string,
  { params = {}, costs }: Pick<Approval, 'params' | 'costs'>,
): string | null {
  const { [name]: value, ...others } = params;
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || Object.values(others).includes(value)) return null;
  const taken = costs.filter(({ amount }) => amount === value);
  const [only = null, ...more] = new Set(taken.map(({ unit }) => currencyOf(unit, params['currency'])));
  return more.length === 0 ? only : null;
}

/** An amount as people write it in a field for this currency: `1234.50`. */
export function moneyField(amount: number, currency: string): string {
  const digits = digitsOf(currency);
  return (amount / 10 ** digits).toFixed(digits);
}

/** What somebody wrote in such a field, in the smallest unit; `null` where it is no amount of the currency. */
export function moneyOfField(text: string, currency: string): number | null {
  const [, whole, rest = ''] = /^(\d{1,13})(?:\.(\d+))?$/.exec(text.trim()) ?? [];
  const digits = digitsOf(currency);
  return whole === undefined || rest.length > digits ? null : Number(whole + rest.padEnd(digits, '0'));
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
    const isMoney = currency !== null && typeof value === 'number';
    return [`${word} ${isMoney ? moneyText(value, currency) : JSON.stringify(value)}`];
  };
  return [...side('at least', min), ...side('at most', max)].join(', ');
}
