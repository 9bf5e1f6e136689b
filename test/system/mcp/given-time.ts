import { readdirSync, readFileSync } from 'node:fs';

/**
 * Starts a watch that takes off what the machine took: the longest time for which this thread, or one of another process,
 * was ready to run while the machine ran something else. Where the system does not tell (only Linux does), it is an
 * ordinary watch.
 *
 * @param pid the other process
 * @returns how long it has gone, ms
 */
export function startGivenTime(pid: number): () => number {
  const threads = [`${process.pid}/task/${process.pid}`, ...threadsOf(pid)];
  const before = threads.map(waitOf);
  const begun = performance.now();
  return () => {
    const gone = performance.now() - begun;
    return gone - Math.max(...threads.map((thread, n) => waitOf(thread) - (before[n] ?? 0)));
  };
}

function threadsOf(pid: number): readonly string[] {
  try {
    return readdirSync(`/proc/${pid}/task`).map((thread) => `${pid}/task/${thread}`);
  } catch {
    return [];
  }
}

/** How long a thread has waited for a processor so far, ms. Of one that has ended: nothing. */
function waitOf(thread: string): number {
  try {
    const [, waited = '0'] = readFileSync(`/proc/${thread}/schedstat`, 'utf8').split(' ');
    return Number(waited) / 1e6;
  } catch {
    return 0;
  }
}
