import { type ChildProcessWithoutNullStreams, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { SVC } from './mcp/raw-bridge.ts';

const OWNER = join(import.meta.dirname, 'mcp/stdio-owner.mjs');
const ODD = join(import.meta.dirname, '../upstreams/mcp-stdio/odd-server.mjs');

interface Owned {
  readonly owner: ChildProcessWithoutNullStreams;
  /** The child, one that it started, and one that left its process group. All ignore SIGTERM and the end of their input. */
  readonly pids: readonly number[];
  readonly keeper: number;
}

const owners: Owned[] = [];

beforeAll(() => {
  // Builds, if need be.
  execFileSync(process.execPath, [SVC, '--version']);
});

afterEach(() => {
  for (const { owner, pids } of owners.splice(0))
    for (const pid of [owner.pid ?? 0, ...pids]) if (pid > 0 && isAlive(pid)) process.kill(pid, 'SIGKILL');
});

async function begin(): Promise<Owned> {
  const owner = spawn(process.execPath, [OWNER, ODD]);
  owner.stderr.pipe(process.stderr);
  const ended = once(owner, 'exit').then(() => expect.fail('the owner ended before it owned anything'));
  const [line] = (await Promise.race([once(createInterface({ input: owner.stdout }), 'line'), ended])) as [string];
  const owned = { owner, ...(JSON.parse(line) as Omit<Owned, 'owner'>) };
  owners.push(owned);
  return owned;
}

function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

test('the owner is killed with SIGKILL: nothing of its children is left', async () => {
  const { owner, pids, keeper } = await begin();
  expect([...pids, keeper].filter(isAlive).length).toBe(4);
  owner.kill('SIGKILL');
  await expect.poll(() => [...pids, keeper].filter(isAlive)).toEqual([]);
});

test('no descriptors are left: sessions are refused, the keeper is replaced later, and the owner goes on', () => {
  const script = join(import.meta.dirname, 'mcp/stdio-without-files.mjs');
  const words = ['-c', 'ulimit -n 60; exec "$@"', 'sh', process.execPath, script, ODD];
  const said: unknown = JSON.parse(execFileSync('sh', words, { encoding: 'utf8' }));
  expect(said).toEqual({ first: 200, besideKeeper: 503, withoutKeeper: 502, after: 200 });
});

test('the keeper is killed: another takes its place', async () => {
  const { owner, pids, keeper } = await begin();
  process.kill(keeper, 'SIGKILL');
  await expect.poll(() => isAlive(keeper)).toBe(false);
  // The owner hears of it a moment later, and starts another.
  await expect.poll(() => keepersOf(owner.pid ?? 0).length).toBe(1);
  owner.kill('SIGKILL');
  await expect.poll(() => pids.filter(isAlive)).toEqual([]);
});

test('the owner ends: it waits for no keeper, and nothing is left', async () => {
  const { owner, pids, keeper } = await begin();
  owner.stdin.end();
  await once(owner, 'exit');
  await expect.poll(() => [...pids, keeper].filter(isAlive)).toEqual([]);
});

/** Processes of an owner that wait with a script in their arguments. */
function keepersOf(owner: number): readonly string[] {
  const children = readFileSync(`/proc/${owner}/task/${owner}/children`, 'utf8').trim().split(' ');
  return children.filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('SVC_STDIO_OWNER');
    } catch {
      return false;
    }
  });
}
