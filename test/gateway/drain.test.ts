import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createDrain } from '../../src/gateway/drain.ts';

describe('draining', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it('waits for requests that were not read yet because the process stood still', async () => {
    let now = 0;
    let isOver = false;
    const drain = createDrain(() => now);
    const look = async (ms: number): Promise<void> => {
      now += ms;
      await vi.advanceTimersByTimeAsync(20);
    };
    drain.arrived();
    const over = drain.drain().then(() => {
      isOver = true;
    });
    await look(1_000);
    drain.arrived();
    for (let looks = 0; looks < 10; looks += 1) await look(20);
    expect(isOver).toBe(false);
    await look(20);
    await over;
  });

  it.each([
    ['that somebody asked 199 ms ago looks ten times', 199, 10],
    ['that nobody has asked for 200 ms looks once', 200, 1],
  ])('a gateway %s, and is not ready from the first moment on', async (_when, quietMs, looks) => {
    let now = 10_000;
    const drain = createDrain(() => now);
    drain.arrived();
    now += quietMs;
    expect(drain.isDraining()).toBe(false);
    let isOver = false;
    const over = drain.drain().then(() => {
      isOver = true;
    });
    expect(drain.isDraining()).toBe(true);
    for (let look = 0; look < looks; look += 1) {
      expect(isOver).toBe(false);
      await vi.advanceTimersByTimeAsync(20);
    }
    await over;
    expect(drain.isDraining()).toBe(true);
  });
});

/** A promise, and how it ends. */
function deferred(): { promise: Promise<string>; resolve(value: string): void; reject(error: Error): void } {
  let resolve: (value: string) => void = () => undefined;
  let reject: (error: Error) => void = () => undefined;
  const promise = new Promise<string>((done, failed) => {
    resolve = done;
    reject = failed;
  });
  return { promise, resolve, reject };
}

it('work that outlives its caller is waited for, and hands its end on', async () => {
  const drain = createDrain(() => performance.now());
  await drain.finished();
  const first = deferred();
  const second = deferred();
  const works = [drain.running(first.promise), drain.running(second.promise)];
  let isFinished = false;
  const finished = drain.finished().then(() => {
    isFinished = true;
  });
  first.resolve('settled');
  expect(await works[0]).toBe('settled');
  expect(isFinished).toBe(false);
  second.reject(new Error('lost'));
  await expect(works[1]).rejects.toThrow('lost');
  await finished;
  await drain.finished();
});

it('stopping does not wait for ever where requests go on coming', async () => {
  let now = 0;
  const drain = createDrain(() => (now += 10));
  const caller = setInterval(() => drain.arrived(), 1);
  let isOver = false;
  const over = drain.drain().then(() => {
    isOver = true;
  });
  await expect.poll(() => isOver).toBe(true);
  clearInterval(caller);
  await over;
  expect(now).toBeGreaterThanOrEqual(5_000);
  // A caller that ignores /readyz holds nobody up for longer.
  expect(now).toBeLessThan(20_000);
});

it('what was sent is waited for to the last', async () => {
  const drain = createDrain(() => 0);
  await drain.finished();
  drain.begin();
  let isOver = false;
  const finished = drain.finished().then(() => {
    isOver = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(isOver).toBe(false);
  let end = (): void => undefined;
  const work = drain.running(new Promise<void>((resolve) => (end = resolve)));
  drain.end();
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(isOver).toBe(false);
  end();
  await Promise.all([work, finished]);
  expect(isOver).toBe(true);
});
