let second = Number.NaN;
let secondText = '';

/**
 * Writes a time as `Date.prototype.toISOString` does, much cheaper. Calls that run together have times within a second
 * or two, so the text of the last second is kept.
 * @param at ms since the epoch
 */
export function isoTime(at: number): string {
  const whole = Math.trunc(at);
  const of = Math.floor(whole / 1000);
  if (of !== second) {
    secondText = new Date(of * 1000).toISOString().slice(0, -'000Z'.length);
    second = of;
  }
  return `${secondText}${String(whole - of * 1000).padStart(3, '0')}Z`;
}
