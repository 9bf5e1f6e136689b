import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { measureOverload } from '../../src/api/overload.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

it('the work of the start is no load; what comes two seconds later is', () => {
  // The event loop does not turn in this test: each sample finds that it stood still.
  const overload = measureOverload();
  vi.advanceTimersByTime(10_000);
  expect(overload.isOverloaded()).toBe(true);
  overload.started();
  expect(overload.isOverloaded()).toBe(false);
  vi.advanceTimersByTime(2_000);
  expect(overload.isOverloaded()).toBe(false);
  vi.advanceTimersByTime(1);
  expect(overload.isOverloaded()).toBe(true);
  overload.close();
});
