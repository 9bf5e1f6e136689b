import { afterEach, expect, it, vi } from 'vitest';
import { Worker } from 'node:worker_threads';
import { startThread } from '../../src/stores/threads/thread.ts';

afterEach(() => vi.restoreAllMocks());

/** A thread that answers nothing: what was asked of it stays with it. */
const SILENT = new URL('data:text/javascript,setInterval(() => undefined, 1000)');

/** The requests of each message, as the thread gets them. */
async function requestsOf(count: number): Promise<readonly number[]> {
  const posted = vi.spyOn(Worker.prototype, 'postMessage').mockReturnValue(undefined);
  const thread = startThread(
    SILENT,
    { kind: 'read', path: '', program: null },
    () => undefined,
    () => undefined,
    () => undefined,
  );
  thread.unref();
  for (let n = 0; n < count; n += 1)
    thread.send(
      'watch',
      [],
      () => undefined,
      () => undefined,
    );
  await new Promise(setImmediate);
  // Each request has its number before the line feed.
  return posted.mock.calls.map(([message]) => String(message).split('\n', 1)[0]?.split(',').length ?? 0);
}

it('a request that the thread has to itself goes at once, and of one turn six share a message', async () => {
  const [alone = 0, ...together] = await requestsOf(15);
  expect(together.map((numbers) => numbers / alone)).toEqual([6, 6, 2]);
});
