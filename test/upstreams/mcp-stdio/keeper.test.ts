import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Keeper, OWNER_VARIABLE } from '../../../src/upstreams/mcp/stdio/keeper.ts';

const PATIENT = { timeout: 20_000 } as const;

let keeper: Keeper;
const groups: number[] = [];
beforeEach(() => {
  keeper = new Keeper();
});
afterEach(() => {
  keeper.close();
  for (const group of groups.splice(0)) if (isAlive(group)) process.kill(-group, 'SIGKILL');
});

interface Begun {
  readonly group: number;
  readonly child: ChildProcess;
  /** Another process of its group. */
  readonly beside: number;
}

/** A child in a group of its own. Without a mark of its owner it is one that has thrown away what it inherited. */
async function begun(mark: string | null = null): Promise<Begun> {
  const child = spawn('/bin/sh', ['-c', 'sleep 600 & echo "$!"; wait'], {
    env: { PATH: process.env['PATH'], ...(mark !== null && { [OWNER_VARIABLE]: mark }) },
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const { pid: group = 0 } = child;
  groups.push(group);
  const [line] = await once(child.stdout, 'data');
  return { group, child, beside: Number(line) };
}

function isAlive(pid: number): boolean {
  try {
    // A zombie still answers to signals.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

test('a keeper in the place of one that died ends the children that there were, and no others', async () => {
  // Whoever has left the keeper would be ended first.
  const [gone, kept] = [await begun(), await begun()];
  keeper.ready();
  const { pid } = keeper;
  for (const { group } of [gone, kept]) keeper.add(group);
  if (pid === null) throw new Error('there is no keeper');
  process.kill(pid, 'SIGKILL');
  await expect.poll(() => keeper.pid !== null && keeper.pid !== pid, PATIENT).toBe(true);
  keeper.remove(gone.group);
  keeper.close();
  await expect.poll(() => kept.child.signalCode, PATIENT).toBe('SIGKILL');
  // With all that it has started.
  await expect.poll(() => isAlive(kept.beside), PATIENT).toBe(false);
  expect([gone.group, gone.beside].filter(isAlive)).toHaveLength(2);
});

/** The process of the keeper, which is there. */
function keeping(): number {
  const { pid } = keeper;
  if (pid === null) throw new Error('there is no keeper');
  return pid;
}

test('at the end of its gateway a keeper ends what carries its mark, and nothing of another gateway', async () => {
  keeper.ready();
  const [own, others] = [await begun(keeper.owner), await begun('another')];
  const pid = keeping();
  keeper.close();
  await expect.poll(() => own.child.signalCode, PATIENT).toBe('SIGKILL');
  await expect.poll(() => isAlive(pid), PATIENT).toBe(false);
  expect([own.beside, others.group, others.beside].filter(isAlive)).toEqual([others.group, others.beside]);
  expect(() => keeper.ready()).toThrow('the gateway is ending');
});

test('a keeper knows nothing of the gateway, and what a terminal tells the gateway does not end it', async () => {
  keeper.ready();
  const pid = keeping();
  const read = (file: string): string => readFileSync(`/proc/${pid}/${file}`, 'utf8');
  await expect.poll(() => read('cmdline'), PATIENT).toContain(OWNER_VARIABLE);
  expect(read('environ')).toBe('');
  // The name of the program, which may hold anything, stands before the state, the parent and the group.
  expect(read('stat').split(') ')[1]?.split(' ')[2]).toBe(String(pid));
  const signals = (): bigint => BigInt(`0x${/^SigCgt:\s+(\w+)$/m.exec(read('status'))?.[1] ?? ''}`);
  const [hangup, interrupt, terminate] = [1n, 2n, 15n].map((signal) => 1n << (signal - 1n));
  await expect.poll(() => signals() & (hangup ?? 0n), PATIENT).toBe(hangup);
  for (const signal of [interrupt, terminate]) expect(signals() & (signal ?? 0n)).toBe(signal);
});
