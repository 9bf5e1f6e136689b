import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { Profiler } from 'node:inspector';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { askForTime, canPin, coresOf, type CpuTimes, hasThreadTimes, keepOn, threadTimes } from './cpu.ts';

/** A process that has said where it listens. */
export interface Server {
  readonly url: string;
  cpu(): Promise<CpuTimes>;
  /** What its main thread did during some work; `null` where it does not tell. */
  profile(work: () => Promise<unknown>): Promise<Profiler.Profile | null>;
  /** What it has in memory now (resident set); `null` where the system does not tell. */
  residentBytes(): number | null;
  stop(): Promise<void>;
}

export interface ServerOptions {
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  /** Where it may run, where processes can be kept on cores; `served` keeps the main thread on the first, and no other. */
  readonly place: 'served' | 'first' | 'upstream';
}

/** Starts a Node process on the same Node and waits for its `ready` line. */
export async function startServer(args: readonly string[], options: ServerOptions): Promise<Server> {
  const { cwd, env, place } = options;
  const folder = mkdtempSync(join(tmpdir(), 'svc-bench-threads-'));
  const threads = join(folder, 'threads');
  const command = [process.execPath, '--import', new URL('./name-threads.js', import.meta.url).href, ...args];
  const cores = coresOf(place === 'served' ? 'free' : place);
  const [file = '', ...words] = canPin() ? ['taskset', '-c', cores, ...command] : command;
  const child = spawn(file, words, {
    cwd,
    env: { ...process.env, BENCH_THREADS: threads, ...env },
    stdio: ['ignore', 'pipe', 'pipe', ...(hasThreadTimes() ? [] : ['ipc' as const])],
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const url = await readyUrl(child, args);
  const pid = child.pid ?? 0;
  if (place === 'served') keepOn('first', pid, 'thread');
  return {
    url,
    cpu: async () => (hasThreadTimes() ? threadTimes(pid, namesIn(threads)) : await askForTime(child)),
    async profile(work) {
      if (!hasThreadTimes()) return null;
      child.kill('SIGUSR2');
      await work();
      child.kill('SIGUSR2');
      const file = `${threads}.cpuprofile`;
      while (!existsSync(file)) await sleep(50);
      // It was written by V8.
      const profile = JSON.parse(readFileSync(file, 'utf8')) as Profiler.Profile;
      rmSync(file);
      return profile;
    },
    residentBytes() {
      if (!hasThreadTimes()) return null;
      const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
      return Number(kilobytes) * 1_024;
    },
    async stop() {
      child.kill('SIGTERM');
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function readyUrl(child: ChildProcess, args: readonly string[]): Promise<string> {
  const { stdout, stderr } = child;
  if (stdout === null || stderr === null) throw new Error('a server has outputs');
  let errors = '';
  stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-4000);
  });
  return new Promise((resolve, reject) => {
    createInterface({ input: stdout }).on('line', (line) => {
      const event: unknown = JSON.parse(line);
      if (typeof event === 'object' && event !== null && 'url' in event && typeof event.url === 'string')
        resolve(event.url);
    });
    child.once('exit', (code) => reject(new Error(`${args.join(' ')} ended with ${code}: ${errors}`)));
  });
}

function namesIn(file: string): Map<number, string> {
  const lines = readFileSync(file, 'utf8').trim().split('\n');
  return new Map(
    lines.map((line) => {
      const [thread = '', name = 'others'] = line.split(' ');
      return [Number(thread), name];
    }),
  );
}
