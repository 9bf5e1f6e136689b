import { openSync, readFileSync, readSync } from 'node:fs';

/**
 * Longest time for which some work held the event loop, in CPU ms of this thread: what other programs of a busy machine
 * take does not count.
 */
export async function longestHold(work: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let over = false;
  let before = cpu();
  const look = (): void => {
    const now = cpu();
    longest = Math.max(longest, now - before);
    before = now;
    if (!over) setImmediate(look);
  };
  setImmediate(look);
  await work();
  over = true;
  look();
  return longest;
}

const STAT = `/proc/self/task/${process.pid}/schedstat`;
const cpu = cpuOfThread();

/** CPU time so far, ms: of the main thread where the system tells (Linux), else of the process. */
function cpuOfThread(): () => number {
  try {
    if (Number(readFileSync(STAT, 'utf8').split(' ')[0]) > 0) {
      const file = openSync(STAT, 'r');
      const bytes = Buffer.alloc(64);
      return () => Number.parseInt(bytes.toString('latin1', 0, readSync(file, bytes, 0, 64, 0)), 10) / 1e6;
    }
  } catch {
    // Another system.
  }
  return () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  };
}
