import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, expect, test } from 'vitest';
import { Keeper } from '../../../src/upstreams/mcp/stdio/keeper.ts';

const PATIENT = { timeout: 20_000 } as const;

const keeper = new Keeper();
const children: ChildProcess[] = [];
afterEach(() => {
  keeper.close();
  for (const child of children) child.kill('SIGKILL');
});

/** A child in a group of its own that carries no mark of its owner: it has thrown away what it inherited. */
async function unmarked(): Promise<{ readonly group: number; readonly child: ChildProcess }> {
  const child = spawn('sleep', ['600'], { env: { PATH: process.env['PATH'] }, detached: true, stdio: 'ignore' });
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
