import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Deadline } from '../../../src/upstreams/mcp/mcp-upstream.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a call is given up when its time is over, and not before', () => {
  const deadline = new Deadline(1_000, null);
  vi.advanceTimersByTime(999);
  expect([deadline.signal.aborted, deadline.isOver]).toEqual([false, false]);
  vi.advanceTimersByTime(1);
  expect([deadline.signal.aborted, deadline.isOver]).toEqual([true, true]);
});

test('a caller who gives up, before it or during it, is not a time that is over', () => {
  for (const isBefore of [true, false]) {
    const caller = new AbortController();
    if (isBefore) caller.abort();
    const deadline = new Deadline(1_000, caller.signal);
    caller.abort();
    expect([deadline.signal.aborted, deadline.isOver]).toEqual([true, false]);
    deadline.end();
  }
});

test('a call that has ended keeps no timer, and nothing ends it again', () => {
  const caller = new AbortController();
  const deadline = new Deadline(1_000, caller.signal);
  deadline.end();
  expect(vi.getTimerCount()).toBe(0);
  caller.abort();
  expect(deadline.signal.aborted).toBe(false);
});
