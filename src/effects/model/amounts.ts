import type { Hold } from './effect.ts';

/**
 * What the answer to a call says was really spent, by unit, for the units of which the tool says where that stands.
 * `null`: the answer does not say it, or not as a whole number from 0 to 2^53-1.
 */
export type Amounts = Readonly<Record<string, number | null>>;

/** The amount that a hold is posted with: what was really spent, else what was held. */
export function amountToPost({ unit, amount }: Pick<Hold, 'unit' | 'amount'>, amounts: Amounts | undefined): number {
  return (amounts !== undefined && Object.hasOwn(amounts, unit) ? amounts[unit] : null) ?? amount;
}
