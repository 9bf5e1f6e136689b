/** The form of RFC 3339 times, for schemas. {@link timeFromWire} finds those that do not exist. */
export const TIME_FORM = '^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}(\\.\\d{1,9})?(Z|[+-]\\d{2}:\\d{2})$';

/** RFC 3339 in UTC with milliseconds. */
export function timeToWire(ms: number): string {
  return new Date(ms).toISOString();
}

export function optionalTimeToWire(ms: number | null): string | null {
  return ms === null ? null : timeToWire(ms);
}

/** @returns ms since the epoch, or `null` if the text is not a valid time (31 February, hour 25) */
export function timeFromWire(text: string): number | null {
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) return null;
  // For some days that do not exist, `Date.parse` continues into the next month.
  const day = Number(text.slice(8, 10));
  const shifted = new Date(`${text.slice(0, 10)}T00:00:00Z`);
  return shifted.getUTCDate() === day ? ms : null;
}
