import { expect, test, vi } from 'vitest';
import type { Evidence } from '../../src/effects/model/effect.ts';
import { SilentUpstreams } from '../../src/gateway/signals.ts';

const unanswered = (code: string) => ({ code, message: '', answered: null, startedAt: null, endedAt: null });

test.each<[string, Evidence, number]>([
  ['calls that had no answer', unanswered('timeout'), 1],
  [
    'calls that it answered, whatever it said',
    { ...unanswered('http_status'), answered: { kind: 'http', status: 500 } },
    0,
  ],
  ['calls that the gateway held back', unanswered('not_dispatched'), 0],
])('after three %s', (_which, evidence, told) => {
  const alerts: string[] = [];
  const silent = new SilentUpstreams((upstream, code) => void alerts.push(`${upstream} ${code}`));
  for (let calls = 0; calls < 2; calls += 1) silent.called('payments', evidence);
  expect([alerts, silent.notes(Date.now())]).toEqual([[], []]);
  silent.called('payments', evidence);
  expect([alerts.length, silent.notes(Date.now()).length]).toEqual([told, told]);
  // One silence is one alert, however long it lasts.
  silent.called('payments', evidence);
  expect(alerts).toHaveLength(told);
});

test('a silence is told of until an hour after its last call, however long ago it began', () => {
  vi.useFakeTimers({ now: 0 });
  try {
    const silent = new SilentUpstreams(() => undefined);
    for (const minute of [0, 40, 80]) {
      vi.setSystemTime(minute * 60_000);
      silent.heard('payments', 'timeout');
    }
    expect(silent.notes(140 * 60_000)).toEqual([
      { part: 'upstream', message: expect.stringContaining('the latest 60 min ago'), since: 0 },
    ]);
    expect(silent.notes(140 * 60_000 + 1)).toEqual([]);
  } finally {
    vi.useRealTimers();
  }
});

test('a silence ends with an answer, and what another upstream says ends none', () => {
  const silent = new SilentUpstreams(() => undefined);
  const told = () => silent.notes(Date.now()).map(({ message }) => /calls of (\w+)/.exec(message)?.[1]);
  for (const upstream of ['payments', 'desk'])
    for (let calls = 0; calls < 3; calls += 1) silent.heard(upstream, 'timeout');
  silent.heard('mail', null);
  expect(told()).toEqual(['payments', 'desk']);
  silent.heard('payments', null);
  expect(told()).toEqual(['desk']);
  // It begins anew: two calls are none yet.
  for (let calls = 0; calls < 2; calls += 1) silent.heard('payments', 'timeout');
  expect(told()).toEqual(['desk']);
});

test('an answer ends a silence: three calls in a row are one again, and another is told of anew', () => {
  const alerts: string[] = [];
  const silent = new SilentUpstreams((upstream, code) => void alerts.push(`${upstream} ${code}`));
  const calls = (...codes: readonly (string | null)[]): void => {
    for (const code of codes) silent.heard('payments', code);
  };
  calls('timeout', 'timeout', null, 'timeout', 'timeout');
  silent.heard('mail', 'timeout');
  expect([alerts, silent.notes(Date.now())]).toEqual([[], []]);
  calls('reset');
  expect(alerts).toEqual(['payments reset']);
  expect(silent.notes(Date.now())).toMatchObject([{ message: expect.stringMatching(/^The last 3 calls of payments/) }]);
  calls(null);
  expect(silent.notes(Date.now())).toEqual([]);
  calls('timeout', 'timeout', 'timeout');
  expect(alerts).toEqual(['payments reset', 'payments timeout']);
});
