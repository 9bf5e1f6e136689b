import { describe, expect, test } from 'vitest';
import { calendarWindow, isTimeZone, parseInstant, type Period } from '../../src/policy/windows.ts';

const HOUR = 3_600_000;

function bounds(period: Period, zone: string, now: string): readonly [string, string] {
  const window = calendarWindow(period, zone)(Date.parse(now));
  if (window.kind !== 'calendar') throw new Error('not a calendar window');
  return [new Date(window.start).toISOString(), new Date(window.end).toISOString()];
}

describe('calendar windows', () => {
  const cases: readonly [Period, string, string, string, string][] = [
    ['minute', 'UTC', '2026-06-15T12:34:56Z', '2026-06-15T12:34:00.000Z', '2026-06-15T12:35:00.000Z'],
    ['hour', 'Asia/Kolkata', '2026-06-15T12:34:56Z', '2026-06-15T12:30:00.000Z', '2026-06-15T13:30:00.000Z'],
    ['day', 'Europe/Berlin', '2026-06-15T21:59:59.999Z', '2026-06-14T22:00:00.000Z', '2026-06-15T22:00:00.000Z'],
    ['day', 'Europe/Berlin', '2026-06-15T22:00:00Z', '2026-06-15T22:00:00.000Z', '2026-06-16T22:00:00.000Z'],
    ['day, 23 hours', 'Europe/Berlin', '2026-03-29T12:00:00Z', '2026-03-28T23:00:00.000Z', '2026-03-29T22:00:00.000Z'],
    ['day, 25 hours', 'Europe/Berlin', '2026-10-25T12:00:00Z', '2026-10-24T22:00:00.000Z', '2026-10-25T23:00:00.000Z'],
    [
      'day without midnight',
      'America/Sao_Paulo',
      '2018-11-04T12:00:00Z',
      '2018-11-04T03:00:00.000Z',
      '2018-11-05T02:00:00.000Z',
    ],
    [
      'day before it',
      'America/Sao_Paulo',
      '2018-11-04T02:59:59Z',
      '2018-11-03T03:00:00.000Z',
      '2018-11-04T03:00:00.000Z',
    ],
    [
      'day that midnight begins twice',
      'America/Havana',
      '2026-11-01T04:30:00Z',
      '2026-11-01T04:00:00.000Z',
      '2026-11-02T05:00:00.000Z',
    ],
    ['day', 'Pacific/Apia', '2011-12-31T12:00:00Z', '2011-12-31T10:00:00.000Z', '2012-01-01T10:00:00.000Z'],
    ['week', 'UTC', '2026-06-14T23:59:59Z', '2026-06-08T00:00:00.000Z', '2026-06-15T00:00:00.000Z'],
    ['week', 'UTC', '2026-06-15T00:00:00Z', '2026-06-15T00:00:00.000Z', '2026-06-22T00:00:00.000Z'],
    ['month', 'America/New_York', '2026-03-31T12:00:00Z', '2026-03-01T05:00:00.000Z', '2026-04-01T04:00:00.000Z'],
    ['month', 'UTC', '2028-02-29T12:00:00Z', '2028-02-01T00:00:00.000Z', '2028-03-01T00:00:00.000Z'],
    ['year', 'Asia/Tokyo', '2026-12-31T15:00:00Z', '2026-12-31T15:00:00.000Z', '2027-12-31T15:00:00.000Z'],
  ].map(([name, zone, now, start, end]) => [periodOf(name ?? ''), zone ?? '', now ?? '', start ?? '', end ?? '']);
  test.each(cases)('%s in %s at %s', (period, zone, now, start, end) => {
    expect(bounds(period, zone, now)).toEqual([start, end]);
  });

  test.each([
    ['Europe/Berlin', 2026],
    ['America/Havana', 2026],
    ['Australia/Lord_Howe', 2026],
    ['Africa/Cairo', 2026],
    ['America/Sao_Paulo', 2018],
    ['Asia/Kathmandu', 2026],
  ])('windows of %s %d touch: no gap, no overlap', (zone, year) => {
    for (const period of ['hour', 'day', 'week', 'month'] as const) {
      const forward = calendarWindow(period, zone);
      const backward = calendarWindow(period, zone);
      let at = Date.UTC(year, 0, 1);
      let last: number | null = null;
      let windows = 0;
      for (; at < Date.UTC(year + 1, 0, 1); windows += 1) {
        const window = forward(at);
        if (window.kind !== 'calendar') throw new Error('not a calendar window');
        // Compared by hand: a matcher for each of so many windows takes its time.
        if (window.start > at || window.end <= at || (last !== null && window.start !== last))
          expect.fail(`${period} ${zone}: ${JSON.stringify(window)} at ${at} after ${last}`);
        const end = backward(window.end - 1);
        if (end.kind !== 'calendar' || end.start !== window.start || end.end !== window.end)
          expect.fail(`${period} ${zone}: ${JSON.stringify(window)} ends as ${JSON.stringify(end)}`);
        last = window.end;
        at = window.end;
      }
      expect(windows).toBeGreaterThan(11);
    }
  });

  test('is remembered until it ends, and not longer', () => {
    const at = calendarWindow('day', 'UTC');
    const noon = Date.UTC(2026, 5, 15, 12);
    expect(at(noon)).toBe(at(noon + HOUR));
    expect(at(noon + 12 * HOUR)).not.toEqual(at(noon));
    // A clock may be set back.
    at(noon + 12 * HOUR);
    expect(at(noon)).toMatchObject({ end: noon + 12 * HOUR });
  });
});

function periodOf(name: string): Period {
  for (const period of ['minute', 'hour', 'day', 'week', 'month', 'year'] as const)
    if (name.startsWith(period)) return period;
  throw new Error(`no period: ${name}`);
}

test('dates and times', () => {
  expect(parseInstant('2026-12-20', 'Europe/Berlin')).toBe(Date.UTC(2026, 11, 19, 23));
  expect(parseInstant('2026-12-20T08:00:00+01:00', 'UTC')).toBe(Date.UTC(2026, 11, 20, 7));
  for (const text of ['2026-02-29', '2026-13-01', '2026-12-20T25:00:00Z', 'soon'])
    expect(parseInstant(text, 'UTC')).toBeNull();
});

test('zones', () => {
  expect(['UTC', 'Europe/Berlin', '+02:00', 'Nowhere/Land', ''].map(isTimeZone)).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
});
