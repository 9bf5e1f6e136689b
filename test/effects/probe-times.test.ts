import { describe, expect, it } from 'vitest';
import { nextProbe, waitAfter } from '../../src/effects/run/probe-effect.ts';

const LIFE = {
  at: 0,
  lease: {
    fence: { epoch: 1, n: 1, nonce: 'n' },
    owner: 'o',
    admittedAt: 0,
    dispatchBy: 0,
    leaseEnd: 0,
    quiesceUntil: 60_000,
  },
} as const;
const PROBE = { everyMs: 5_000, forMs: 3_600_000 };

/** When readings are made that all say the same, ms. */
function readings(finding: 'unknown' | 'not_happened', probe = PROBE, first = 2_000): readonly number[] {
  const times: number[] = [];
  for (let at: number | null = first; at !== null && times.length < 100; ) {
    const reading = { finding, readAt: at, wasHeard: true };
    const before = [...times];
    times.push(at);
    at = nextProbe(reading, waitAfter(reading, before, LIFE, probe), LIFE, probe);
  }
  return times;
}

describe('when an unknown outcome is probed', () => {
  it('ever less often, exactly when everything is over, and then less often anew', () => {
    const times = readings('unknown');
    expect(times).toContain(60_000);
    expect(times.length).toBeLessThan(30);
    expect(times.at(-1)).toBeLessThanOrEqual(3_600_000);
    const waits = times.slice(1).map((at, index) => at - (times[index] ?? 0));
    expect(Math.min(...waits)).toBeGreaterThanOrEqual(PROBE.everyMs);
    const early = waits.slice(0, times.indexOf(60_000) - 1);
    expect(early.toSorted((one, other) => one - other)).toEqual(early);
  });

  it('what is not there is looked at twice within two intervals of when everything is over', () => {
    for (let first = 100; first < 60_000; first += 700) {
      const after = readings('not_happened', PROBE, first).filter((at) => at >= 60_000);
      expect(after[1]).toBeLessThanOrEqual(60_000 + 2 * PROBE.everyMs);
      expect((after[1] ?? 0) - (after[0] ?? 0)).toBeGreaterThanOrEqual(PROBE.everyMs);
    }
  });

  it('a reading without an answer, and a time in which no gateway ran, put nothing off', () => {
    const reading = { finding: 'unknown', readAt: 30_000, wasHeard: false } as const;
    expect(waitAfter(reading, [], LIFE, PROBE)).toBe(PROBE.everyMs);
    const heard = { ...reading, readAt: 3_000_000, wasHeard: true };
    expect(waitAfter(heard, [2_000, 7_000], LIFE, PROBE)).toBe(PROBE.everyMs);
  });

  it('from the moment when everything is over readings count anew, and what is not there is read at once again', () => {
    const late = { finding: 'unknown', readAt: 70_000, wasHeard: true } as const;
    expect(waitAfter(late, [59_999], LIFE, PROBE)).toBe(PROBE.everyMs);
    expect(waitAfter(late, [60_000], LIFE, PROBE)).toBeGreaterThan(PROBE.everyMs);
    expect(waitAfter({ ...late, finding: 'not_happened' }, [60_000, 65_000], LIFE, PROBE)).toBe(PROBE.everyMs);
  });

  it('a read that never answers is made some hundred times in a month, and still soon after the first minutes', () => {
    const month = { ...PROBE, forMs: 30 * 24 * 3_600_000 };
    const times: number[] = [];
    for (let at: number | null = 2_000; at !== null && times.length < 10_000; ) {
      const reading = { finding: 'unknown', readAt: at, wasHeard: false } as const;
      times.push(at);
      at = nextProbe(reading, waitAfter(reading, [], LIFE, month), LIFE, month);
    }
    expect(times.length).toBeLessThan(1_200);
    expect(times.filter((at) => at < 500_000).length).toBeGreaterThan(90);
    expect(times.at(-1)).toBeGreaterThan(29 * 24 * 3_600_000);
  });

  it('until the time for it is over; but what was once not there gets its second look', () => {
    expect(readings('unknown', { ...PROBE, forMs: 10_000 }).at(-1)).toBeLessThanOrEqual(10_000);
    const early = { finding: 'unknown', readAt: 5_000 } as const;
    expect(nextProbe(early, 5_000, LIFE, { forMs: 10_000 })).toBe(10_000);
    expect(nextProbe(early, 5_001, LIFE, { forMs: 10_000 })).toBeNull();
    const reading = { finding: 'not_happened', readAt: 61_000 } as const;
    expect(nextProbe(reading, 5_000, LIFE, { forMs: 62_000 })).toBe(66_000);
    expect(nextProbe({ ...reading, finding: 'unknown' }, 5_000, LIFE, { forMs: 62_000 })).toBeNull();
    expect(nextProbe(reading, 5_000, LIFE, { forMs: 0 })).toBeNull();
  });
});
