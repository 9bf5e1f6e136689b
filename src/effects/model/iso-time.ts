let second = Number.NaN;
let secondText = '';

/**
 * A time as `Date.prototype.toISOString` writes it, at a fraction of the price: the times of calls that run at once lie
 * within a second or two, whose text is made once.
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
