import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test, vi } from 'vitest';
import { StdioChild } from '../../../src/upstreams/mcp/stdio/child.ts';
import { Keeper } from '../../../src/upstreams/mcp/stdio/keeper.ts';

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'svc-child-')));
const keeper = new Keeper();
afterAll(() => {
  keeper.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Made {
  readonly cwd?: string;
  readonly graceMs?: number;
  readonly kept?: Keeper;
  /** Is called for each of its lines. */
  readonly onLine?: (child: StdioChild, send: (message: string) => void) => void;
}

/** A shell that runs a script, and what is heard of it: its lines, what became of messages, and why it is over. */
function shell(script: string, { cwd, graceMs = 60_000, kept = keeper, onLine = () => undefined }: Made = {}) {
  const heard: string[] = [];
  const send = (message: string, mayGo = true): void =>
    child.send(
      Buffer.from(message),
      {},
      {
        start: () => mayGo,
        taken: () => void heard.push('taken'),
        refused: (status) => void heard.push(`refused ${status}`),
        lost: () => void heard.push('lost'),
      },
    );
  const child: StdioChild = new StdioChild(
    { command: '/bin/sh', args: ['-c', script], env: {}, cwd: cwd ?? null },
    kept,
    { lineBytes: 1_000, graceMs },
    {
      line: (bytes) => {
        heard.push(bytes.toString());
        onLine(child, send);
      },
      over: (why) => void heard.push(why),
    },
  );
  return { child, heard, send };
}

test('a child runs in the folder that is configured for it', async () => {
  const { child, heard } = shell('pwd', { cwd: folder });
  await child.gone;
  expect(heard).toEqual([folder, 'it ended with exit code 0']);
});

test('a message is one line, and no longer than a line may be; what is held back is no line', async () => {
  const { child, heard, send } = shell('while read -r line; do echo "${#line}"; done');
  send('x'.repeat(1_001));
  send('held back', false);
  send('x'.repeat(1_000));
  await expect.poll(() => heard).toEqual(['refused 503', 'taken', '1000']);
  send('yy');
  await expect.poll(() => heard.at(-1)).toBe('2');
  child.end();
  await child.gone;
  expect(heard).toEqual(['refused 503', 'taken', '1000', 'taken', '2', 'its session was ended']);
});

test('a child is asked to end by the end of its input, then by SIGTERM', async () => {
  const reads = shell('cat');
  reads.child.end();
  // It does not wait for the minute that a child may take.
  await reads.child.gone;
  expect(reads.heard).toEqual(['its session was ended']);
  const mark = join(folder, 'terminated');
  const works = shell(`trap 'touch ${mark}; exit 0' TERM; echo up; sleep 600 & wait`, { graceMs: 1_000 });
  await expect.poll(() => works.heard).toEqual(['up']);
  works.child.end();
  await works.child.gone;
  expect([existsSync(mark), works.heard]).toEqual([true, ['up', 'its session was ended']]);
});

test('of a child that was ended the first reason is told, nothing that it says comes after it, and it takes nothing', async () => {
  const { child, heard } = shell('echo; echo one; echo two; read -r line', {
    onLine: (speaking, send) => {
      speaking.kill('that is enough');
      send('more');
      speaking.end();
      speaking.kill('the gateway is ending');
    },
  });
  await child.gone;
  expect(heard).toEqual(['one', 'refused 503', 'that is enough']);
});

test('why a child ended is said with the end of what it wrote as errors, in one line that can be shown', async () => {
  const { child, heard, send } = shell(
    `printf '${'x'.repeat(3_000)} no ' >&2; echo up; read -r line; printf 'data\\n\\tbase \\033[31m\\n' >&2; exit 3`,
  );
  await expect.poll(() => heard).toEqual(['up']);
  send('go on');
  await child.gone;
  const said = `${'x'.repeat(500)} no data base \\u{1b}[31m`;
  const [, why = ''] = (heard.at(-1) ?? '').split('it ended with exit code 3; it said: ');
  expect(said.endsWith(why) && why.startsWith('x')).toBe(true);
  // The end of it is kept, and what cannot be shown takes more room than it did.
  expect(why.length).toBeGreaterThan(490);
});

test('what a child that has ended wrote is read to its end, though nobody reads at that time, and before it is over', async () => {
  // More than are taken in one turn.
  const { child, heard } = shell('seq 300', { onLine: (speaking) => speaking.pause() });
  await child.gone;
  const lines = Array.from({ length: 300 }, (_, line) => String(line + 1));
  expect(heard).toEqual([...lines, 'it ended with exit code 0']);
});

test('of a child that has ended all is read that comes, though that takes longer than its pipes stay open in silence', async () => {
  const { child, heard, send } = shell(
    `setsid sh -c 'for n in 0 1 2 3 4 5 6 7; do echo "$n"; sleep 0.2; done' & read -r line`,
  );
  await expect.poll(() => heard.length).toBeGreaterThan(0);
  send('end');
  await child.gone;
  const all = ['0', '1', '2', '3', '4', '5', '6', '7', 'it ended with exit code 0'];
  expect(heard.filter((what) => what !== 'taken')).toEqual(all);
});

test('a child that has ended is over after a time, though another goes on writing to its pipes', async () => {
  const { child, heard, send } = shell(`setsid sh -c 'while echo "$$"; do sleep 0.2; done' & read -r line`);
  await expect.poll(() => heard.length).toBeGreaterThan(0);
  send('end');
  await child.gone;
  expect(heard.at(-1)).toBe('it ended with exit code 0');
  // As nobody reads what it writes, it has ended too.
  await expect.poll(() => existsSync(`/proc/${String(heard[0])}`)).toBe(false);
});

test('a child that has ended is over, though another that it started holds its pipes', async () => {
  const { child, heard, send } = shell(`setsid sh -c 'echo "$$"; exec sleep 600' & read -r line`);
  await expect.poll(() => heard.length).toBe(1);
  send('end');
  await child.gone;
  const [helper] = heard;
  expect(heard).toEqual([helper, 'taken', 'it ended with exit code 0']);
  process.kill(Number(helper), 'SIGKILL');
});

test('the keeper ends a child that threw its mark away; nobody signals the id of one that has ended', async () => {
  const own = new Keeper();
  const left = vi.spyOn(own, 'remove');
  const ended = shell('exit 0', { kept: own });
  await ended.child.gone;
  expect(left.mock.calls).toEqual([[ended.child.pid]]);
  const signalled = vi.spyOn(process, 'kill');
  ended.child.kill('the gateway is ending');
  expect(signalled).not.toHaveBeenCalled();
  signalled.mockRestore();
  const { child, heard } = shell('exec env -i sleep 600', { kept: own });
  await expect.poll(() => readFileSync(`/proc/${String(child.pid)}/cmdline`, 'utf8')).toMatch(/^sleep/);
  own.close();
  await child.gone;
  expect(heard).toEqual(['it ended by SIGKILL']);
});
