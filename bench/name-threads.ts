import { appendFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { isMainThread } from 'node:worker_threads';

/**
 * Preloaded into each measured process, and so into each of its threads. Linux knows a thread by a number only: a thread
 * of a program writes its own and its name into the file that BENCH_THREADS names. Elsewhere the process answers, on its
 * channel to the benchmark, what it has used.
 */
const file = process.env['BENCH_THREADS'];
if (process.platform === 'linux' && file !== undefined) {
  const [, thread = ''] = /(\d+)$/.exec(readlinkSync('/proc/thread-self')) ?? [];
  const name = isMainThread ? 'main' : nameOf(process.argv[1] ?? '');
  appendFileSync(file, `${thread} ${name}\n`);
} else if (isMainThread && process.send !== undefined) {
  process.on('message', () => {
    const { user, system } = process.cpuUsage();
    process.send?.({ used: user + system });
  });
  process.channel?.unref();
}

/** The thread of the embedded store is `worker.js`; any other goes by its file. */
function nameOf(path: string): string {
  const name = basename(path).replace(/\.[jt]s$/, '');
  return name === 'worker' ? 'store' : name;
}
