import { expect, test } from 'vitest';
import { LineQueue } from '../../packages/bridge/src/line-queue.ts';

const line = (text: string) => ({ kind: 'line', bytes: Buffer.from(text) }) as const;

test('lines come in their order, also those that come while one is dealt with, until all are there', async () => {
  const queue = new LineQueue(10_000);
  expect(queue.push(line('1'))).toBe(true);
  const taken: string[] = [];
  const work = (async () => {
    for await (const one of queue.lines()) {
      taken.push(one.kind === 'line' ? one.bytes.toString() : one.kind);
      if (taken.length === 1) queue.push({ kind: 'too_long' });
    }
  })();
  await new Promise(setImmediate);
  queue.push(line('3'));
  await new Promise(setImmediate);
  queue.close();
  await work;
  expect(taken).toEqual(['1', 'too_long', '3']);
});

test('what waits has a bound, small lines count too, and one line always has room', async () => {
  const queue = new LineQueue(1_000);
  expect(queue.push(line('x'.repeat(5_000)))).toBe(true);
  expect(queue.push(line(''))).toBe(false);
  const lines = queue.lines();
  await lines.next();
  // It is dealt with, and still held.
  expect(queue.push(line(''))).toBe(false);
  void lines.next();
  await new Promise(setImmediate);
  expect([1, 2, 3, 4, 5].map(() => queue.push(line('')))).toEqual([true, true, true, false, false]);
});
