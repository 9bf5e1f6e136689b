import { expect, it } from 'vitest';
import { createReadingTurns, type Thread } from '../../src/effects/run/reading-turns.ts';

/** A thread whose time passes as the test says. */
function threadOfTest() {
  let now = 0;
  let used = 0;
  const waits: { readonly ms: number; readonly work: () => void }[] = [];
  const thread: Thread = {
    now: () => now,
    used: () => used,
    after: (ms, work) => void waits.push({ ms, work }),
  };
  return {
    thread,
    waits,
    pass: (ms: number) => {
      now += ms;
    },
    use: (share: number) => {
      used = share;
    },
    /** Does what waits next. @returns how long it had to wait, ms */
    next(): number | null {
      const wait = waits.shift();
      wait?.work();
      return wait?.ms ?? null;
    },
  };
}

it('after a part, others have the thread for nine times as long while they are busy, and as long again while not', () => {
  const at = threadOfTest();
  const turns = createReadingTurns(at.thread);
  const part = (): void => at.pass(1.5);
  for (let count = 0; count < 3; count += 1) void turns.run(part);
  expect(at.waits).toHaveLength(1);
  expect(at.next()).toBe(0);
  // One at a time, however many wait; half a ms is added for what a part costs besides its own time.
  expect(at.waits.map(({ ms }) => ms)).toEqual([2]);
  at.use(0.5);
  expect(at.next()).toBe(2);
  expect(at.next()).toBe(18);
  expect(at.next()).toBe(18);
  expect(at.next()).toBeNull();
});

it('parts run in order; one that fails fails alone', async () => {
  const at = threadOfTest();
  const turns = createReadingTurns(at.thread);
  const first = turns.run(() => {
    throw new Error('first');
  });
  const second = turns.run(async () => 'second');
  const third = turns.run(() => 'third');
  while (at.next() !== null);
  await expect(first).rejects.toThrow('first');
  expect(await Promise.all([second, third])).toEqual(['second', 'third']);
});

it('a long row of items is made in parts of about 2 ms, in order', async () => {
  const at = threadOfTest();
  const turns = createReadingTurns(at.thread);
  const items = Array.from({ length: 10 }, (_, index) => index);
  const longest: number[] = [];
  const made = turns.map(items, (item) => {
    at.pass(0.7);
    return item * 2;
  });
  for (let turn = 0; turn < 100; turn += 1) {
    const begun = at.thread.now();
    if (at.next() !== null) longest.push(at.thread.now() - begun);
    await Promise.resolve();
  }
  expect(await made).toEqual(items.map((item) => item * 2));
  expect(Math.max(...longest)).toBeCloseTo(2.1);
});

it('on a real thread, parts of many readers leave timers their turn', async () => {
  const turns = createReadingTurns();
  let ticks = 0;
  const ticking = setInterval(() => {
    ticks += 1;
  }, 1);
  const busy = (): void => {
    const until = performance.now() + 2;
    while (performance.now() < until);
  };
  await Promise.all(Array.from({ length: 40 }, () => turns.run(busy)));
  clearInterval(ticking);
  expect(ticks).toBeGreaterThanOrEqual(20);
});
