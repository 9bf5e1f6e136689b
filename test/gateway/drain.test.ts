import { expect, it } from 'vitest';
import { createDrain } from '../../src/gateway/drain.ts';

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
