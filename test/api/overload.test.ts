import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { measureOverload } from '../../src/api/front.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

it('the work of the start is no load; what comes two seconds later is', () => {
  // The event loop does not turn in this test: each sample finds that it stood still.
  const overload = measureOverload({ size: 0 });
  vi.advanceTimersByTime(10_000);
  expect([overload.isOverloaded(), overload.wasLate()]).toEqual([true, true]);
  overload.started();
  expect(overload.isOverloaded()).toBe(false);
  vi.advanceTimersByTime(2_000);
  expect(overload.isOverloaded()).toBe(false);
  vi.advanceTimersByTime(1);
  expect(overload.isOverloaded()).toBe(true);
  overload.close();
});

it('with 128 requests under way, what arrives after 100 ms of one turn is refused, and what arrives within a second', async () => {
  // Time goes on, and no sample is taken.
  vi.useFakeTimers({ toFake: ['performance'] });
  const underWay = { size: 128 };
  const overload = measureOverload(underWay);
  vi.advanceTimersByTime(2_001);
  const after = (ms: number): boolean => {
    vi.advanceTimersByTime(ms);
    return overload.isOverloaded();
  };
  expect([after(0), after(100), after(1)]).toEqual([false, false, true]);
  underWay.size = 127;
  expect(after(0)).toBe(false);
  underWay.size = 128;
  await new Promise(setImmediate);
  expect([after(999), after(1)]).toEqual([true, false]);
  // A turn that is long before anything arrives in it is none that new requests make long.
  await new Promise(setImmediate);
  expect([after(500), overload.wasLate()]).toEqual([false, false]);
  overload.close();
});

it('an event loop that was late is remembered for fifteen seconds: what arrived meanwhile may have waited unread', () => {
  const overload = measureOverload({ size: 0 });
  expect(overload.wasLate()).toBe(false);
  // A sample that finds that the loop stood still; from then on none is taken.
  vi.advanceTimersByTime(1_000);
  overload.close();
  expect(overload.wasLate()).toBe(true);
  vi.advanceTimersByTime(14_999);
  expect(overload.wasLate()).toBe(true);
  vi.advanceTimersByTime(1);
  expect(overload.wasLate()).toBe(false);
});

it('once it stands still, whoever arrives is refused, however few there are; nothing is sampled after it is closed', () => {
  const overload = measureOverload({ size: 0 });
  vi.advanceTimersByTime(3_000);
  expect(overload.isOverloaded()).toBe(true);
  overload.close();
  expect(vi.getTimerCount()).toBe(0);
});
