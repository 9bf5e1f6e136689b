import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import type { Names } from './expression.ts';
import { isList } from './operators.ts';
import { below, type Reporter } from './reporter.ts';
import type { ScheduleSource } from './schema-approval.ts';
import { isTimeZone, parseInstant, zoneClock } from './windows.ts';

/** Hours of the week, on the clock of a zone, but for some dates. */
export interface SchedulePlan {
  readonly name: string;
  readonly zone: string;
  /** Days of the week, 0 is Sunday. */
  readonly days: readonly number[];
  /** From and to within a day, in minutes, in order and apart. */
  readonly hours: readonly (readonly [from: number, to: number])[];
  /** `2026-12-25` */
  readonly exceptDates: readonly string[];
}

/** The instant at which so much time of a schedule has passed since another, ms. */
export type TimeIn = (since: number, ms: number) => number;

const DAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
/** As many days of a schedule are gone through at most: what takes longer ends with the last of them. */
const MOST_DAYS = 184;
const WEEKS_CHECKED = 26;
/** As many dates a schedule may leave out. */
const MOST_EXCEPTIONS = 1_000;

/** Checks a schedule of a set. @returns `null` where it is faulty (reported) */
export function compileSchedule(
  name: string,
  source: ScheduleSource,
  ownZone: string,
  names: Names,
  report: Reporter,
): SchedulePlan | null {
  const path: DataPath = ['schedules', name];
  const zone = source.timezone ?? ownZone;
  const isZone = isTimeZone(zone);
  if (!isZone)
    report.error('unknown_zone', below(path, 'timezone'), [
      `Unknown time zone '${zone}'`,
      didYouMean(zone, Intl.supportedValuesOf('timeZone')),
    ]);
  const days = new Set((source.days ?? ['mon-sun']).flatMap(daysOf));
  const hours = hoursOf(source.hours ?? ['00:00-24:00'], [...path, 'hours'], report);
  const exceptDates = datesOf(source.except_dates ?? [], [...path, 'except_dates'], names, report);
  if (!isZone || hours === null || exceptDates === null) return null;
  return { name, zone, days: [...days], hours, exceptDates };
}

/** The days of `mon-fri` or `sat`. A span may go over the end of the week. */
function daysOf(text: string): readonly number[] {
  const [from = '', to = from] = text.split('-');
  const first = DAYS.indexOf(from);
  const count = (DAYS.indexOf(to) - first + 7) % 7;
  return Array.from({ length: count + 1 }, (_, index) => (first + index) % 7);
}

function hoursOf(texts: readonly string[], path: DataPath, report: Reporter): SchedulePlan['hours'] | null {
  const spans = texts.map((text) => {
    const [from = 0, to = 0] = text.split('-').map(minutesOf);
    return [from, to] as const;
  });
  const spansInOrder = spans.toSorted(([a], [b]) => a - b);
  for (const [index, [from, to]] of spans.entries())
    if (from >= to) {
      report.error('wrong_value', below(path, index), [
        `'${texts[index] ?? ''}' does not end after it begins, on the same day`,
        'hours over midnight are two: 22:00-24:00 and 00:00-06:00',
      ]);
      return null;
    }
  const overlaps = spansInOrder.some(([from], index) => from < (spansInOrder[index - 1]?.[1] ?? 0));
  if (overlaps) report.error('wrong_value', path, 'The hours overlap', 'key');
  return overlaps ? null : spansInOrder;
}

function minutesOf(text: string): number {
  const [hours = '', minutes = ''] = text.split(':');
  return Number(hours) * 60 + Number(minutes);
}

/** Dates, or the `$name` of a list of them. */
function datesOf(
  source: string | readonly string[],
  path: DataPath,
  names: Names,
  report: Reporter,
): readonly string[] | null {
  let dates: readonly unknown[] = [];
  if (typeof source !== 'string') dates = source;
  else {
    const right = names.right(source.slice(1));
    if (right?.kind !== 'literal' || !isList(right.value)) {
      report.error('unknown_name', path, [
        `There is no list '${source}'`,
        didYouMean(source.slice(1), names.rightNames),
      ]);
      return null;
    }
    dates = right.value;
  }
  if (dates.length > MOST_EXCEPTIONS) {
    report.error('too_large', path, `More than ${MOST_EXCEPTIONS} dates`);
    return null;
  }
  const texts = dates.filter((date): date is string => typeof date === 'string' && isDate(date));
  const unfit = dates.find((date) => typeof date !== 'string' || !isDate(date));
  if (unfit === undefined) return texts;
  report.error('wrong_value', path, [`There is no date ${JSON.stringify(unfit)}`, 'write it as 2026-12-25']);
  return null;
}

function isDate(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) && parseInstant(text, 'UTC') !== null;
}

/** Whether so much time passes within {@link WEEKS_CHECKED} weeks without exceptions. */
export function comesSoon({ days, hours }: SchedulePlan, ms: number): boolean {
  const daily = hours.reduce((sum, [from, to]) => sum + to - from, 0);
  return ms <= daily * 60_000 * days.length * WEEKS_CHECKED;
}

/**
 * Counts time of a schedule by the clock of its zone. Where that clock is set forward over the beginning or the end of
 * hours, they begin or end with the change; where it shows a time twice, the first counts.
 */
export function timeIn({ zone, days, hours, exceptDates }: Omit<SchedulePlan, 'name'>): TimeIn {
  const clock = zoneClock(zone);
  const without = new Set(exceptDates);
  const known = new Map<number, readonly (readonly [from: number, to: number])[]>();

  /** What of a local day belongs to it. @param day its midnight as if it were in UTC */
  const hoursOfDay = (day: number): readonly (readonly [from: number, to: number])[] => {
    const there = known.get(day);
    if (there !== undefined) return there;
    const date = new Date(day);
    const [year, month, ofMonth] = [date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate()];
    const isOpen = days.includes(date.getUTCDay()) && !without.has(date.toISOString().slice(0, 10));
    const spans = !isOpen
      ? []
      : hours.map(
          ([from, to]) =>
            [clock.instantOf(year, month, ofMonth, from), clock.instantOf(year, month, ofMonth, to)] as const,
        );
    if (known.size > 2 * MOST_DAYS) known.clear();
    known.set(day, spans);
    return spans;
  };

  return (since, ms) => {
    const local = new Date(since + clock.offset(since));
    const [year, month, date] = [local.getUTCFullYear(), local.getUTCMonth(), local.getUTCDate()];
    let left = ms;
    let last = since;
    for (let day = 0; day < MOST_DAYS; day += 1)
      for (const [from, to] of hoursOfDay(Date.UTC(year, month, date + day))) {
        const open = Math.max(from, since);
        if (to <= open) continue;
        if (left <= to - open) return open + left;
        left -= to - open;
        last = to;
      }
    return last > since ? last : since + ms;
  };
}
