import type { JsonObject } from '../../json/value.ts';

/** Symbols that stand for one currency alone, to people who read English. Others are written by their code. */
const SYMBOLS: Readonly<Record<string, string>> = { EUR: '€', GBP: '£', INR: '₹', JPY: '¥', KRW: '₩', USD: '$' };

const KNOWN: ReadonlySet<string> = new Set(Intl.supportedValuesOf('currency'));
const digitsOf = new Map<string, number>();

/**
 * An amount in the smallest unit of a currency, as money: `$800.00`, `CHF 12.50`. Written here and not by Intl, whose texts
 * differ from one version to the next: votes are bound to them.
 * @returns `null` where it is no whole number, or the currency is not known
 */
export function moneyText(amount: unknown, currency: unknown): string | null {
  if (typeof amount !== 'number' || !Number.isSafeInteger(amount)) return null;
  if (typeof currency !== 'string' || !KNOWN.has(currency)) return null;
  const digits = digitsAfterPoint(currency);
  const [whole = '', rest] = decimal(Math.abs(amount), digits).split('.');
  const grouped = whole.replaceAll(/\B(?=(\d{3})+$)/g, ',');
  return `${amount < 0 ? '-' : ''}${SYMBOLS[currency] ?? `${currency} `}${grouped}${rest === undefined ? '' : `.${rest}`}`;
}

/** The currency whose smallest unit a budget counts (`EUR-cent`), or the one that the call names where it counts cents. */
export function currencyOf(unit: string, named: unknown): string | null {
  const own = /^([A-Z]{3})[-_](?:cents?|minor)$/.exec(unit)?.[1];
  if (own !== undefined) return own;
  return /^cents?$/.test(unit) && typeof named === 'string' ? named : null;
}

/** An amount of a budget: as money where its unit is that of a currency. */
export function amountText(amount: number, unit: string, named: unknown): string {
  return moneyText(amount, currencyOf(unit, named)) ?? `${amount} ${unit}`;
}

/**
 * The currency that a param is an amount of: one budget of money takes just its value, and no other param has that value.
 * @param params as they stand
 * @returns `null` where nothing says so for certain
 */
export function currencyOfParam(
  name: string,
  params: JsonObject,
  costs: readonly { readonly unit: string; readonly amount: number | null }[],
): string | null {
  const { [name]: value, ...others } = params;
  if (typeof value !== 'number' || Object.values(others).includes(value)) return null;
  const currencies = new Set(
    costs.filter(({ amount }) => amount === value).map(({ unit }) => currencyOf(unit, params['currency'])),
  );
  const [only = null] = currencies;
  return currencies.size === 1 && moneyText(value, only) !== null ? only : null;
}

/** An amount as people write it in a field for this currency: `1234.50`. */
export function moneyField(amount: number, currency: string): string {
  return `${amount < 0 ? '-' : ''}${decimal(Math.abs(amount), digitsAfterPoint(currency))}`;
}

/** A whole number, not negative, with its point moved, to the digit: a division would round. */
function decimal(amount: number, digits: number): string {
  const units = String(amount).padStart(digits + 1, '0');
  return digits === 0 ? units : `${units.slice(0, -digits)}.${units.slice(-digits)}`;
}

/** What somebody wrote in such a field, in the smallest unit; `null` where it is no amount of the currency. */
export function moneyOfField(text: string, currency: string): number | null {
  const [, whole, rest = ''] = /^(\d{1,13})(?:\.(\d+))?$/.exec(text.trim()) ?? [];
  const digits = digitsAfterPoint(currency);
  return whole === undefined || rest.length > digits ? null : Number(whole + rest.padEnd(digits, '0'));
}

function digitsAfterPoint(currency: string): number {
  const known = digitsOf.get(currency);
  if (known !== undefined) return known;
  const { maximumFractionDigits = 2 } = new Intl.NumberFormat('en', { style: 'currency', currency }).resolvedOptions();
  digitsOf.set(currency, maximumFractionDigits);
  return maximumFractionDigits;
}
