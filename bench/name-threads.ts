import { appendFileSync, readlinkSync, renameSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { basename } from 'node:path';
import { isMainThread, workerData } from 'node:worker_threads';

/**
 * Preloaded into each measured process, and so into each of its threads. Linux knows a thread by a number only: a thread
 * of a program writes its own and its name into the file that BENCH_THREADS names; at the first SIGUSR2 the main thread
 * begins a profile of itself, and at the second it writes it beside that file. Elsewhere the process answers, on its
 * channel to the benchmark, what it has used.
 */
const file = process.env['BENCH_THREADS'];
if (process.platform === 'linux' && file !== undefined) {
  const [, thread = ''] = /(\d+)$/.exec(readlinkSync('/proc/thread-self')) ?? [];
  const name = isMainThread ? 'main' : nameOf(process.argv[1] ?? '');
  appendFileSync(file, `${thread} ${name}\n`);
  if (isMainThread) profileOnSignal(`${file}.cpuprofile`);
} else if (isMainThread && process.send !== undefined) {
  process.on('message', () => {
    const { user, system } = process.cpuUsage();
    process.send?.({ used: user + system });
  });
  process.channel?.unref();
}

/** Between two looks of the profiler, µs. */
const EVERY_US = 200;

function profileOnSignal(into: string): void {
  let session: Session | null = null;
  const turn = async (): Promise<void> => {
    if (session === null) {
      session = new Session();
      session.connect();
      await session.post('Profiler.enable');
      await session.post('Profiler.setSamplingInterval', { interval: EVERY_US });
      await session.post('Profiler.start');
      return;
    }
    const { profile } = await session.post('Profiler.stop');
    session.disconnect();
    session = null;
    writeFileSync(`${into}.part`, JSON.stringify(profile));
    renameSync(`${into}.part`, into);
  };
  process.on('SIGUSR2', () => void turn());
}

/** The threads of the embedded store are both `worker.js`; any other goes by its file. */
function nameOf(path: string): string {
  const name = basename(path).replace(/\.[jt]s$/, '');
  if (name !== 'worker') return name;
  const data: unknown = workerData;
  const reads = typeof data === 'object' && data !== null && 'kind' in data && data.kind === 'read';
  return reads ? 'store-reader' : 'store';
}
