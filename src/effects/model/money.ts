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

/** The currency that a bucket of a budget is for (`["support-bot","EUR"]`); `null` where none or several of its values are one. */
export function currencyOfBucket(bucket: string): string | null {
  const named = (bucket.match(/"[A-Z]{3}"/g) ?? []).map((value) => value.slice(1, -1)).filter((one) => KNOWN.has(one));
  return named.length === 1 ? (named[0] ?? null) : null;
}

/** An amount of a budget: as money where its unit is that of a currency. */
export function amountText(amount: number, unit: string, named: unknown): string {
  return moneyText(amount, currencyOf(unit, named)) ?? `${amount} ${unit}`;
}

/** What a call takes as money, of the first budget that counts some; `null` where none does. */
export function moneyTaken(
  costs: readonly { readonly unit: string; readonly amount: number | null }[],
  named: unknown,
): { readonly amount: number; readonly currency: string; readonly text: string } | null {
  for (const { unit, amount } of costs) {
    const currency = currencyOf(unit, named);
    const text = moneyText(amount, currency);
    if (amount !== null && currency !== null && text !== null) return { amount, currency, text };
  }
  return null;
}

/** What a button calls a call: `€800.00 refund`, or its tool where no budget says what it takes. */
export function callName(tool: string, money: string | null): string {
  const name = money === null && tool.length <= 30 ? tool : lastName(tool);
  const short = name.length <= 30 ? name : `${name.slice(0, 29)}…`;
  return money === null ? short : `${money} ${short}`;
}

/** The last part of a tool's name: `refund`. */
export function lastName(tool: string): string {
  return tool.slice(tool.lastIndexOf('.') + 1);
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

/** Thousands set apart as nobody reads them in two ways: by spaces, or by commas with a point or more commas after them. */
const GROUPED = /^\d{1,3}(?:(?:[ \u00A0\u202F]\d{3})+(?:\.\d+)?|(?:,\d{3})+\.\d+|(?:,\d{3}){2,})$/;

/**
 * What somebody wrote in such a field, in the smallest unit; `null` where it is no amount of the currency, or could be two:
 * `400,50` is one amount, and `1,000` is a thousand to some and one to others.
 */
export function moneyOfField(text: string, currency: string): number | null {
  const trimmed = text.trim();
  const plain = GROUPED.test(trimmed) ? trimmed.replaceAll(/[ ,\u00A0\u202F]/g, '') : trimmed;
  const [, whole, point, rest = ''] = /^(\d{1,13})(?:([.,])(\d+))?$/.exec(plain) ?? [];
  const digits = digitsAfterPoint(currency);
  if (whole === undefined || rest.length > digits || (point === ',' && rest.length === 3)) return null;
  return Number(whole + rest.padEnd(digits, '0'));
}

/** How an amount has to be written, for who wrote another. */
export function moneyShape(currency: string): string {
  return `has to be an amount such as ${moneyField(123_456, currency)}, with nothing between thousands`;
}

function digitsAfterPoint(currency: string): number {
  const known = digitsOf.get(currency);
  if (known !== undefined) return known;
  const { maximumFractionDigits = 2 } = new Intl.NumberFormat('en', { style: 'currency', currency }).resolvedOptions();
  digitsOf.set(currency, maximumFractionDigits);
  return maximumFractionDigits;
}
