import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Keeper, OWNER_VARIABLE } from '../../../src/upstreams/mcp/stdio/keeper.ts';

const PATIENT = { timeout: 20_000 } as const;

let keeper: Keeper;
const children: ChildProcess[] = [];
beforeEach(() => {
  keeper = new Keeper();
});
afterEach(() => {
  keeper.close();
  for (const child of children) child.kill('SIGKILL');
});

/** A child in a group of its own that carries no mark of its owner: it has thrown away what it inherited. */
function unmarked(): Promise<{ readonly group: number; readonly child: ChildProcess }> {
  return begun({});
}

async function begun(env: NodeJS.ProcessEnv): Promise<{ readonly group: number; readonly child: ChildProcess }> {
  const child = spawn('sleep', ['600'], {
    env: { PATH: process.env['PATH'], ...env },
    detached: true,
    stdio: 'ignore',
  });
  children.push(child);
  await once(child, 'spawn');
  return { group: child.pid ?? 0, child };
}

test('a keeper in the place of one that died ends the children that there were, and no others', async () => {
  // Whoever has left the keeper would be ended first.
  const [gone, kept] = [await unmarked(), await unmarked()];
  keeper.ready();
  const { pid } = keeper;
  for (const { group } of [gone, kept]) keeper.add(group);
  if (pid === null) throw new Error('there is no keeper');
  process.kill(pid, 'SIGKILL');
  await expect.poll(() => keeper.pid !== null && keeper.pid !== pid, PATIENT).toBe(true);
  keeper.remove(gone.group);
  keeper.close();
  await expect.poll(() => kept.child.signalCode, PATIENT).toBe('SIGKILL');
  expect(gone.child.exitCode ?? gone.child.signalCode).toBe(null);
});

/** The process of the keeper, which is there. */
function keeping(): number {
  const { pid } = keeper;
  if (pid === null) throw new Error('there is no keeper');
  return pid;
}

test('at the end of its gateway a keeper ends what carries its mark, and nothing of another gateway', async () => {
  keeper.ready();
  const [own, others] = [await begun({ [OWNER_VARIABLE]: keeper.owner }), await begun({ [OWNER_VARIABLE]: 'another' })];
  const pid = keeping();
  keeper.close();
  await expect.poll(() => own.child.signalCode, PATIENT).toBe('SIGKILL');
  await vi.waitFor(() => expect(() => process.kill(pid, 0)).toThrow('ESRCH'), PATIENT);
  expect(others.child.exitCode ?? others.child.signalCode).toBe(null);
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
