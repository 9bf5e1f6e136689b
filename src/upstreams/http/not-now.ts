import type { Attempt } from './attempt.ts';

/** A library waits a minute at most; nobody waits longer than this. */
const MOST_MS = 24 * 60 * 60 * 1000;

/**
 * What a busy upstream says about another try.
 * @returns `null` where it says that there should be none
 */
export function notNow(attempted: Attempt, now: number): { readonly retryAfterMs?: number } | null {
  if (attempted.kind !== 'answer') return {};
  const { headers } = attempted;
  if (headers['x-should-retry'] === 'false' || headers['stripe-should-retry'] === 'false') return null;
  const retryAfterMs = delayOf(headers['retry-after-ms'], headers['retry-after'], now);
  return retryAfterMs === null ? {} : { retryAfterMs };
}

type Value = string | string[] | undefined;

function delayOf(milliseconds: Value, after: Value, now: number): number | null {
  if (typeof milliseconds === 'string' && NUMBER.test(milliseconds)) return Math.min(MOST_MS, Number(milliseconds));
  if (typeof after !== 'string') return null;
  if (NUMBER.test(after)) return Math.min(MOST_MS, Number(after) * 1000);
  // `Date.parse` takes many texts for dates that are none in HTTP.
  const date = after.endsWith(' GMT') ? Date.parse(after) : Number.NaN;
  return Number.isNaN(date) ? null : Math.min(MOST_MS, Math.max(0, date - now));
}

const NUMBER = /^\d+(?:\.\d+)?$/;
