import { type ChildProcess, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';

/** Microseconds of CPU that threads have used since they began, by name. */
export type CpuTimes = ReadonlyMap<string, number>;

/** CPU of one call, by process and thread, µs. */
export type CpuShares = Readonly<Record<string, number>>;

/**
 * Of a process on Linux, from the scheduler's own accounts. Threads that nobody named (V8's, libuv's, those of Redis
 * that sync and free) are `others`.
 */
export function threadTimes(pid: number, names: ReadonlyMap<number, string>): CpuTimes {
  const times = new Map<string, number>();
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    const thread = Number(task);
    const name = names.get(thread) ?? (thread === pid ? 'main' : 'others');
    times.set(name, (times.get(name) ?? 0) + threadTime(pid, task));
  }
  return times;
}

function threadTime(pid: number, task: string): number {
  try {
    const [nanoseconds] = readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ');
    return Number(nanoseconds) / 1_000;
  } catch {
    // It ended between the listing and the look.
    return 0;
  }
}

/** Whether the system tells the time of each thread. */
export function hasThreadTimes(): boolean {
  return process.platform === 'linux';
}

/** Asks a process that has preloaded `name-threads` for what it has used. */
export function askForTime(child: ChildProcess): Promise<CpuTimes> {
  return new Promise((resolve, reject) => {
    child.once('message', (answer: unknown) => {
      if (typeof answer === 'object' && answer !== null && 'used' in answer && typeof answer.used === 'number')
        resolve(new Map([['all threads', answer.used]]));
      else reject(new Error('the process does not tell its time'));
    });
    child.send('time');
  });
}

/** What was used between two looks, for each of so many calls. */
export function perCall(before: CpuTimes, after: CpuTimes, calls: number): CpuShares {
  return Object.fromEntries([...after].map(([name, used]) => [name, (used - (before.get(name) ?? 0)) / calls]));
}

/** The median of each share over the rounds. */
export function medianShares(rounds: readonly CpuShares[]): CpuShares {
  const names = [...new Set(rounds.flatMap((round) => Object.keys(round)))];
  return Object.fromEntries(names.map((name) => [name, median(rounds.map((round) => round[name] ?? 0))]));
}

/** All threads and processes together. */
export function sumOf(shares: CpuShares): number {
  return Object.values(shares).reduce((sum, share) => sum + share, 0);
}

/** For people: threads that use less than a microsecond are left out. */
export function describeShares(shares: CpuShares): string {
  return Object.entries(shares)
    .filter(([, micros]) => micros >= 1)
    .map(([name, micros]) => `${name} ${Math.round(micros)}`)
    .join(', ');
}

/** The middle value. @throws when there is none */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)];
  if (middle === undefined) throw new Error('nothing was measured');
  return middle;
}

/**
 * Who runs where. The main thread of a measured server has the first core; what loads it and what answers it have the
 * last ones, from four cores on one each, so that none of them takes time from it. Its other threads are `free` of those
 * where there are so many. `beside` is the store's server.
 */
export type Place = 'whole machine' | 'free' | 'first' | 'beside' | 'upstream' | 'load';

const CORES = availableParallelism();

let taskset: boolean | null = null;

/** Whether processes can be kept on cores here: util-linux has the command for it, and there are two. */
export function canPin(): boolean {
  taskset ??= CORES > 1 && spawnSync('taskset', ['--version'], { stdio: 'ignore' }).status === 0;
  return taskset;
}

/** The cores of a place, as `taskset` takes them. */
export function coresOf(place: Place): string {
  const last = CORES - 1;
  const free = CORES >= 4 ? CORES - 3 : last;
  switch (place) {
    case 'first':
      return '0';
    case 'beside':
      return `1-${free}`;
    case 'upstream':
      return String(CORES >= 4 ? last - 1 : last);
    case 'load':
      return String(last);
    case 'free':
      return `0-${free}`;
    case 'whole machine':
      return `0-${last}`;
  }
}

/** Keeps a running process there; with `thread`, its main thread only. Does nothing where that cannot be done. */
export function keepOn(place: Place, pid: number, what: 'process' | 'thread'): void {
  if (!canPin()) return;
  const words = [...(what === 'process' ? ['-a'] : []), '-p', '-c', coresOf(place), String(pid)];
  const { status, stderr } = spawnSync('taskset', words, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`taskset ${words.join(' ')}: ${stderr}`);
}
