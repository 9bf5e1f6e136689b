import fc from 'fast-check';
import { expect, test } from 'vitest';
import { timeIn } from '../../src/policy/schedules.ts';
import { compileAll, compileText, faultsOf, HEAD, judge } from './fixtures.ts';

const HOUR = 3_600_000;
const WEEK = [1, 2, 3, 4, 5];
const OFFICE = [[8 * 60, 18 * 60]] as const;

/** When so many hours of a schedule have passed since a time. */
function after(
  since: string,
  hours: number,
  {
    zone = 'Europe/Berlin',
    days = WEEK,
    open = OFFICE,
    except = [],
  }: {
    readonly zone?: string;
    readonly days?: readonly number[];
    readonly open?: readonly (readonly [number, number])[];
    readonly except?: readonly string[];
  } = {},
): string {
  const at = timeIn({ zone, days, hours: open, exceptDates: except })(Date.parse(since), hours * HOUR);
  return new Date(at).toISOString();
}

test.each<[string, string, number, string]>([
  ['within a day', '2026-06-15T08:00:00Z', 4, '2026-06-15T12:00:00.000Z'],
  ['before the office opens', '2026-06-15T03:00:00Z', 1, '2026-06-15T07:00:00.000Z'],
  ['exactly when it opens', '2026-06-15T06:00:00Z', 10, '2026-06-15T16:00:00.000Z'],
  ['up to its end, and not to the next day', '2026-06-15T12:00:00Z', 4, '2026-06-15T16:00:00.000Z'],
  ['exactly when it closes', '2026-06-15T16:00:00Z', 1, '2026-06-16T07:00:00.000Z'],
  ['a millisecond before', '2026-06-15T15:59:59.999Z', 1, '2026-06-16T06:59:59.999Z'],
  ['over the night', '2026-06-15T15:00:00Z', 2, '2026-06-16T07:00:00.000Z'],
  ['over the weekend', '2026-06-19T15:30:00Z', 1, '2026-06-22T06:30:00.000Z'],
  ['over a whole week', '2026-06-15T06:00:00Z', 51, '2026-06-22T07:00:00.000Z'],
  ['over the change to summer', '2026-03-27T16:30:00Z', 1, '2026-03-30T06:30:00.000Z'],
  ['over the change to winter', '2026-10-23T15:30:00Z', 1, '2026-10-26T07:30:00.000Z'],
  ['over the end of a year', '2026-12-31T16:00:00Z', 11, '2027-01-01T17:00:00.000Z'],
])('office hours in Berlin, %s', (_what, since, hours, expected) => {
  expect(after(since, hours)).toBe(expected);
});

test('the day is that of the zone, also where it is the next one in Greenwich', () => {
  const zone = 'Pacific/Honolulu';
  expect(after('2026-06-20T01:00:00Z', 4, { zone })).toBe('2026-06-22T19:00:00.000Z');
});

test('dates that are left out do not count, by the local date', () => {
  const except = ['2026-12-25', '2027-01-01'];
  expect(after('2026-12-24T16:30:00Z', 1, { except })).toBe('2026-12-28T07:30:00.000Z');
  // In Auckland it is the 25th already.
  expect(after('2026-12-24T12:00:00Z', 1, { zone: 'Pacific/Auckland', except })).toBe('2026-12-27T20:00:00.000Z');
});

test('where the clock is set forward over hours they are shorter, and where it shows a time twice the first counts', () => {
  const night = { days: [0], open: [[2 * 60, 4 * 60]] } as const;
  // 02:00 is 03:00: from 01:00Z to 02:00Z.
  expect(after('2026-03-29T00:00:00Z', 1, night)).toBe('2026-03-29T02:00:00.000Z');
  expect(after('2026-03-29T00:00:00Z', 2, night)).toBe('2026-04-05T01:00:00.000Z');
  const skipped = { days: [0], open: [[2 * 60, 3 * 60]] } as const;
  expect(after('2026-03-29T00:00:00Z', 1, skipped)).toBe('2026-04-05T01:00:00.000Z');
  // From the first 02:00 to 04:00 are three hours.
  expect(after('2026-10-25T00:00:00Z', 3, night)).toBe('2026-10-25T03:00:00.000Z');
  const half = { days: [0], open: [[60, 2 * 60 + 30]] } as const;
  expect(after('2026-10-24T20:00:00Z', 1.5, half)).toBe('2026-10-25T00:30:00.000Z');
  expect(after('2026-10-25T00:45:00Z', 0.5, half)).toBe('2026-11-01T00:30:00.000Z');
});

test('half a year is looked ahead, and hours on one day of each week count in it', () => {
  const mondays = { days: [1], open: [[8 * 60, 9 * 60]] } as const;
  expect(after('2026-06-15T00:00:00Z', 26, mondays)).toBe('2026-12-07T08:00:00.000Z');
  expect(after('2026-06-15T00:00:00Z', 60, mondays)).toBe('2026-12-14T08:00:00.000Z');
});

test('what never comes ends: with the last hours within half a year, or as if all time counted', () => {
  const days = Array.from({ length: 200 }, (_, day) =>
    new Date(Date.UTC(2026, 5, 16 + day)).toISOString().slice(0, 10),
  );
  expect(after('2026-06-15T12:00:00Z', 5, { except: days })).toBe('2026-06-15T16:00:00.000Z');
  expect(after('2026-06-15T17:00:00Z', 5, { except: days })).toBe('2026-06-15T22:00:00.000Z');
});

test('by the definition: a minute counts where the clock of the zone shows a time within the hours', () => {
  const zones = ['UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Kathmandu', 'Australia/Lord_Howe', 'Pacific/Apia'];
  const times = fc.record({
    zone: fc.constantFrom(...zones),
    since: fc.integer({ min: Date.UTC(2026, 0, 1) / 60_000, max: Date.UTC(2027, 0, 1) / 60_000 }),
    minutes: fc.integer({ min: 1, max: 1500 }),
    days: fc.uniqueArray(fc.integer({ min: 0, max: 6 }), { minLength: 1 }),
  });
  const open = [
    [8 * 60, 12 * 60 + 30],
    [13 * 60, 18 * 60],
  ] as const;
  fc.assert(
    fc.property(times, ({ zone, since, minutes, days }) => {
      const format = new Intl.DateTimeFormat('en-GB', {
        timeZone: zone,
        weekday: 'short',
        hour: '2-digit',
        minute: '2-digit',
      });
      const counts = (minute: number): boolean => {
        const parts = Object.fromEntries(format.formatToParts(minute * 60_000).map(({ type, value }) => [type, value]));
        const day = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'].indexOf(parts['weekday'] ?? '');
        const shown = Number(parts['hour']) * 60 + Number(parts['minute']);
        return days.includes(day) && open.some(([from, to]) => from <= shown && shown < to);
      };
      let left = minutes;
      let minute = since;
      for (; left > 0; minute += 1) if (counts(minute)) left -= 1;
      const at = timeIn({ zone, days, hours: open, exceptDates: [] })(since * 60_000, minutes * 60_000);
      expect(at).toBe(minute * 60_000);
    }),
    { numRuns: 30 },
  );
});

const approval = (more: string, hours = 'office') =>
  `rules: [ { id: a, effect: require_approval, match: { tools: [payments.refund] }, approval: { approvers: { roles: [oncall] }, hours: ${hours}, ${more} } } ]\n`;

test('a rule counts expires and escalate.after in the hours that it names, in their zone, else in that of the set', () => {
  const required = (schedule: string, now: string, zone = '') => {
    const text = `${HEAD}${zone}schedules: { office: ${schedule} }\n${approval('expires: 4h, escalate: { after: 1h, to: { users: [ada] } }')}`;
    const verdict = judge(compileText(text), { now: Date.parse(now) });
    const [first] = verdict.kind === 'permit' ? verdict.approvals : [];
    return first;
  };
  const office = '{ days: [mon-fri], hours: ["08:00-18:00"] }';
  const friday = required(office, '2026-06-19T16:30:00Z');
  expect(friday).toMatchObject({ expiresMs: 4 * HOUR, escalate: { afterMs: HOUR } });
  expect(friday?.hours).toEqual({
    schedule: 'office',
    expiresAt: Date.parse('2026-06-22T10:30:00Z'),
    escalatesAt: Date.parse('2026-06-19T17:30:00Z'),
  });
  const berlin = required(office, '2026-06-19T15:30:00Z', 'timezone: Europe/Berlin\n');
  expect(berlin?.hours?.escalatesAt).toBe(Date.parse('2026-06-22T06:30:00Z'));
  const own = required(
    '{ days: [mon-fri], hours: ["08:00-18:00"], timezone: UTC }',
    '2026-06-19T15:30:00Z',
    'timezone: Europe/Berlin\n',
  );
  expect(own?.hours?.escalatesAt).toBe(Date.parse('2026-06-19T16:30:00Z'));
  // The passing of time voids no vote; other hours are another rule.
  expect(required(office, '2026-06-19T17:00:00Z')?.ruleDigest).toBe(friday?.ruleDigest);
  expect(required('{ days: [mon-sat], hours: ["08:00-18:00"] }', '2026-06-19T17:00:00Z')?.ruleDigest).not.toBe(
    friday?.ruleDigest,
  );
});

test('a schedule takes its dates from a list, days over the end of the week, and hours in pieces', () => {
  const text = (schedule: string) =>
    `${HEAD}lists: { holidays: ["2026-06-22"] }\nschedules: { office: ${schedule} }\n${approval('expires: 1h')}`;
  const until = (schedule: string, now: string) => {
    const verdict = judge(compileText(text(schedule)), { now: Date.parse(now) });
    const [first] = verdict.kind === 'permit' ? verdict.approvals : [];
    return new Date(first?.hours?.expiresAt ?? 0).toISOString();
  };
  expect(until('{ days: [mon-fri], except_dates: $holidays }', '2026-06-20T00:00:00Z')).toBe(
    '2026-06-23T01:00:00.000Z',
  );
  expect(until('{ days: [sat-mon], hours: ["22:00-24:00", "00:00-00:30"] }', '2026-06-20T23:30:00Z')).toBe(
    '2026-06-21T00:30:00.000Z',
  );
  // Pieces may touch.
  expect(until('{ hours: ["12:00-18:00", "08:00-12:00"] }', '2026-06-20T11:30:00Z')).toBe('2026-06-20T12:30:00.000Z');
  expect(compileAll([text('{ timezone: Asia/Tokyo }')]).warnings).toEqual([]);
  // Without hours the whole day counts, without days each.
  expect(until('{ days: [sat] }', '2026-06-20T23:30:00Z')).toBe('2026-06-27T00:30:00.000Z');
  expect(until('{ hours: ["08:00-09:00"] }', '2026-06-20T08:30:00Z')).toBe('2026-06-21T08:30:00.000Z');
});

test.each([
  ['{ days: [mon-fri] }', 'nights', 'unknown_name'],
  ['{ days: [monday] }', 'office', 'wrong_value'],
  ['{ days: [] }', 'office', 'empty_list'],
  ['{ hours: ["8:00-18:00"] }', 'office', 'wrong_value'],
  ['{ hours: ["18:00-08:00"] }', 'office', 'wrong_value'],
  ['{ hours: ["08:00-08:00"] }', 'office', 'wrong_value'],
  ['{ hours: ["08:00-12:00", "11:00-13:00"] }', 'office', 'wrong_value'],
  ['{ except_dates: ["2026-02-30"] }', 'office', 'wrong_value'],
  ['{ except_dates: ["25.12.2026"] }', 'office', 'wrong_value'],
  ['{ except_dates: $nothing }', 'office', 'unknown_name'],
  ['{ timezone: Europe/Berlim }', 'office', 'unknown_zone'],
  ['{ days: [mon], hours: ["08:00-08:10"] }', 'office', 'wrong_value'],
  ['{ days: [mon], hours: ["08:00-08:50"] }', 'office', 'wrong_value'],
  ['{ open: always }', 'office', 'unknown_field'],
])('the schedule %s, used as %s, does not load: %s', (schedule, name, code) => {
  const faults = faultsOf(`${HEAD}schedules: { office: ${schedule} }\n${approval('expires: 24h', name)}`);
  expect(faults.map((fault) => fault.split(' ')[1])).toContain(code);
});

test('a schedule leaves out a thousand dates, and no more', () => {
  const faults = (count: number): readonly string[] => {
    const dates = Array.from({ length: count }, (_, n) => new Date(n * 24 * HOUR).toISOString().slice(0, 10));
    const schedule = `{ except_dates: ${JSON.stringify(dates)} }`;
    return faultsOf(`${HEAD}schedules: { office: ${schedule} }\n${approval('expires: 24h', 'office')}`);
  };
  expect(faults(1_000)).toEqual([]);
  expect(faults(1_001)).toEqual([expect.stringContaining('too_large More than 1000 dates')]);
});
