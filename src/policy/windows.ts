import type { DataPath } from '../diagnostics/yaml-source.ts';
import type { BudgetWindow } from '../effects/model/verdict.ts';
import type { Reporter } from './reporter.ts';
import type { PERIODS } from './schema.ts';

export type Period = (typeof PERIODS)[number];

/** Gives the window of a budget at an instant. A calendar window is cached until it ends. */
export type WindowAt = (now: number) => BudgetWindow;

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DAY = 86_400_000;

/** A hundred years. A window of thousands of years would end at dates that cannot be written. */
const LONGEST_DAYS = 36_500;

/**
 * The milliseconds of `250ms 5s 15m 4h 30d`. The schema has checked the form.
 * @returns `null` for an unreasonably long time (reported)
 * @throws Error on another form
 */
export function readDuration(text: string, path: DataPath, report: Reporter): number | null {
  const found = /^([1-9][0-9]*)(ms|s|m|h|d)$/.exec(text);
  const unit = UNITS[found?.[2] ?? ''];
  if (found === null || unit === undefined) throw new Error(`no duration: ${text}`);
  const ms = Number(found[1]) * unit;
  if (ms <= LONGEST_DAYS * DAY) return ms;
  report.error('wrong_value', path, `'${text}' is longer than ${LONGEST_DAYS}d`);
  return null;
}

export function isTimeZone(zone: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: zone });
    // Offsets are refused: only newer runtimes accept them as zones, and they have no calendar.
    return !/^[+-]/.test(zone);
  } catch {
    return false;
  }
}

/**
 * The calendar windows of a zone. Windows follow each other without gaps, and days have 23 or 25 hours where clocks
 * change. Weeks begin on Monday. If a day has no midnight, it begins with its first instant.
 */
export function calendarWindow(period: Period, zone: string): WindowAt {
  const clock = zoneClock(zone);
  let current: Extract<BudgetWindow, { kind: 'calendar' }> | null = null;
  return (now) => {
    if (current === null || now < current.start || now >= current.end)
      current = { kind: 'calendar', ...boundsAt(period, clock, now) };
    return current;
  };
}

/**
 * The instant of a `from` or `until`. A date means midnight in the zone; a time has an offset.
 * @returns `null` where there is no such date or time
 */
export function parseInstant(text: string, zone: string): number | null {
  const date = /^(\d{4})-(\d{2})-(\d{2})/.exec(text);
  if (date === null) return null;
  const [year, month, day] = [Number(date[1]), Number(date[2]), Number(date[3])];
  const check = new Date(Date.UTC(year, month - 1, day));
  if (check.getUTCMonth() !== month - 1 || check.getUTCDate() !== day) return null;
  if (text.length === 10) return startOfDay(zoneClock(zone), year, month, day);
  const instant = Date.parse(text);
  return Number.isNaN(instant) ? null : instant;
}

type ZoneClock = ReturnType<typeof zoneClock>;

/** The clock of a time zone that {@link isTimeZone}. */
export function zoneClock(zone: string) {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: zone,
    calendar: 'iso8601',
    numberingSystem: 'latn',
    hourCycle: 'h23',
    era: 'short',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  });
  const clock = {
    /**
     * When the clock shows so many minutes of a local day, for the first time; where it never does, when it goes past
     * them. Month and day may overflow, as in `Date.UTC`.
     */
    instantOf: (year: number, month: number, day: number, minutes: number): number =>
      localInstant(clock, Date.UTC(year, month - 1, day, 0, minutes)),
    /** Offset of local time at an instant, in ms, rounded to whole seconds. */
    offset: (instant: number): number => {
      const whole = Math.floor(instant / 1_000) * 1_000;
      const parts = new Map(format.formatToParts(whole).map(({ type, value }) => [type, Number(value)]));
      const part = (type: Intl.DateTimeFormatPartTypes): number => parts.get(type) ?? 0;
      const local = Date.UTC(
        part('year'),
        part('month') - 1,
        part('day'),
        part('hour'),
        part('minute'),
        part('second'),
      );
      return local - whole;
    },
  };
  return clock;
}

function boundsAt(period: Period, clock: ZoneClock, now: number): { readonly start: number; readonly end: number } {
  if (period === 'minute' || period === 'hour')
    return shortBounds(UNITS[period === 'minute' ? 'm' : 'h'] ?? 0, clock, now);
  const local = new Date(now + clock.offset(now));
  const boundary = (shift: number): number => calendarBoundary(period, clock, local, shift);
  // Where clocks are set back over midnight, the local date alone can give the neighbouring window.
  for (const shift of [0, -1, 1]) {
    const bounds = { start: boundary(shift), end: boundary(shift + 1) };
    if (bounds.start <= now && now < bounds.end) return bounds;
  }
  throw new Error(`no calendar window at ${now}`);
}

/** Start of the window that is `shift` windows after the one with a local date. */
function calendarBoundary(
  period: Exclude<Period, 'minute' | 'hour'>,
  clock: ZoneClock,
  local: Date,
  shift: number,
): number {
  const year = local.getUTCFullYear();
  const month = local.getUTCMonth() + 1;
  const day = local.getUTCDate();
  switch (period) {
    case 'day':
      return startOfDay(clock, year, month, day + shift);
    case 'week':
      return startOfDay(clock, year, month, day - ((local.getUTCDay() + 6) % 7) + 7 * shift);
    case 'month':
      return startOfDay(clock, year, month + shift, 1);
    case 'year':
      return startOfDay(clock, year + shift, 1, 1);
  }
}

/** First instant of a local day. Month and day may overflow, as in `Date.UTC`. */
function startOfDay(clock: ZoneClock, year: number, month: number, day: number): number {
  return clock.instantOf(year, month, day, 0);
}

/** The first instant at which a local clock shows a time; where it never does, the first one past it. */
function localInstant(clock: ZoneClock, shown: number): number {
  const before = shown - clock.offset(shown - DAY);
  const after = shown - clock.offset(shown + DAY);
  // If both candidates show it, the earlier one is the first.
  for (const instant of [Math.min(before, after), Math.max(before, after)])
    if (instant + clock.offset(instant) === shown) return instant;
  return firstWithOffset(clock, Math.min(before, after) - 3_600_000, Math.max(before, after) + 3_600_000);
}

/** The first instant in a span with the offset of its end (in whole seconds). */
function firstWithOffset(clock: ZoneClock, from: number, to: number): number {
  const wanted = clock.offset(to);
  let low = Math.floor(from / 1_000);
  let high = Math.floor(to / 1_000);
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (clock.offset(middle * 1_000) === wanted) high = middle;
    else low = middle;
  }
  return high * 1_000;
}

/** Minutes and hours of the local clock. If the clock changes inside one, it becomes two windows. */
function shortBounds(length: number, clock: ZoneClock, now: number): { readonly start: number; readonly end: number } {
  const offset = clock.offset(now);
  let start = Math.floor((now + offset) / length) * length - offset;
  let end = start + length;
  if (clock.offset(start) !== offset) start = firstWithOffset(clock, start, now);
  if (clock.offset(end - 1) !== offset) end = firstWithOffset(clock, now, end - 1);
  return { start, end };
}
