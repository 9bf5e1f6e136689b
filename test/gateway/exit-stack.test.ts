import { expect, it, vi } from 'vitest';
import { createExitStack } from '../../src/gateway/exit-stack.ts';
import { longestStopMs } from '../../src/gateway/start.ts';

it('closes in the opposite order, and waits no longer than it is told to', async () => {
  const stack = createExitStack();
  const closed: string[] = [];
  stack.push(() => void closed.push('first'));
  stack.push(async () => void closed.push('second'));
  expect(await stack.closeWithin(60_000)).toBe(true);
  expect(closed).toEqual(['second', 'first']);

  stack.push(() => void closed.push('never'));
  stack.push(() => new Promise(() => {}));
  expect(await stack.closeWithin(20)).toBe(false);
  expect(closed).toEqual(['second', 'first']);
});

it('what is closed in time leaves no timer, which would keep the process', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    expect(await createExitStack().closeWithin(30_000)).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

it('a stop takes 30 s at most beyond the longest call, and of a stream all its time counts', () => {
  expect(longestStopMs([])).toBe(30_000);
  expect(longestStopMs([{ timeoutMs: 20_000 }, { timeoutMs: 5_000 }])).toBe(50_000);
  const streams = { totalMs: 600_000, bytes: 1 };
  expect(longestStopMs([{ timeoutMs: 20_000 }, { timeoutMs: 1_500, streams }])).toBe(630_000);
});
