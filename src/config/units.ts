/** The form of durations: a whole number and `ms`, `s`, `m`, `h` or `d`. */
export const DURATION_PATTERN = '^[0-9]{1,9}(ms|s|m|h|d)$';

/** The form of sizes: a whole number and `B`, `KiB`, `MiB` or `GiB`. */
export const SIZE_PATTERN = '^[0-9]{1,9}(B|KiB|MiB|GiB)$';

const MILLISECONDS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

const BYTES: Readonly<Record<string, number>> = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };

/** A text that the schema has accepted as a duration, or as a size. `unit` exists for the compiler alone. */
export type Duration = string & { readonly unit: 'ms' };
export type Size = string & { readonly unit: 'bytes' };

/** `250ms`, `5s`, `10m`, `4h`, `30d` in ms; `null` where the text is not a duration. */
export function parseDuration(text: string): number | null {
  return parseUnits(text, /^([0-9]{1,9})(ms|s|m|h|d)$/, MILLISECONDS);
}

/** `512B`, `64KiB`, `1MiB`, `1GiB` in bytes; `null` where the text is not a size. */
export function parseSize(text: string): number | null {
  return parseUnits(text, /^([0-9]{1,9})(B|KiB|MiB|GiB)$/, BYTES);
}

function parseUnits(text: string, pattern: RegExp, factors: Readonly<Record<string, number>>): number | null {
  const [, digits, unit] = pattern.exec(text) ?? [];
  if (digits === undefined || unit === undefined) return null;
  const value = Number(digits) * (factors[unit] ?? Number.NaN);
  return Number.isSafeInteger(value) ? value : null;
}
