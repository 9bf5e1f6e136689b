import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { until } from '../redis/servers.ts';
import { freshKey, startWorld, type World } from './world.ts';

const FAULTY = join(import.meta.dirname, 'faulty-gateway.mjs');
const LAUNCHER = join(process.cwd(), 'bin', 'svc.mjs');

const cleanUps: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function faultyWorld(): Promise<World> {
  const world = await startWorld({ entry: FAULTY });
  cleanUps.push(() => world.close());
  return world;
}

const note = (key: string) => ({
  action_type: 'mcp.tool_call',
  tool: 'notes.add',
  params: { text: 'x' },
  idempotency_key: key,
});

it.each(['SIGUSR2', 'SIGHUP'] as const)(
  'a fault that nobody caught (%s): logged, nothing more is taken, what runs is settled, and the process ends',
  async (signal) => {
    const world = await faultyWorld();
    const { gateway, upstream } = world;
    await upstream.mode({ mode: 'held', times: 1, path: '/v1/notes' });
    const key = freshKey();
    const running = world.run(note(key));
    await until(async () => (await upstream.counts()).requests === 1);
    gateway.kill(signal);
    await until(async () => gateway.log().includes('nobody caught this fault'));
    const refused = await world.run(note(freshKey())).catch(() => null);
    expect(refused?.body.decision ?? null).toBe(null);
    await upstream.release();
    expect((await running).body.decision).toBe('committed');
    expect(await gateway.ended).toBe(1);
    expect(gateway.log()).toContain('planted, with ?api_key=[redacted]');
    expect(gateway.log()).not.toContain('canary-4711');
    await gateway.restart();
    const again = await world.run(note(key));
    expect(again.body).toMatchObject({ decision: 'duplicate_blocked' });
    expect((await upstream.counts()).effects).toBe(1);
  },
);

it('an upstream that does not answer holds up the end after a fault for no more than seconds', async () => {
  const world = await faultyWorld();
  const { gateway, upstream } = world;
  await upstream.mode({ mode: 'never', times: 1, path: '/v1/notes' });
  const key = freshKey();
  const running = world.run(note(key)).catch(() => null);
  await until(async () => (await upstream.counts()).requests === 1);
  gateway.kill('SIGUSR2');
  const begun = performance.now();
  expect(await gateway.ended).toBe(1);
  // The tool has 20 s.
  expect(performance.now() - begun).toBeLessThan(15_000);
  expect(await running).toBe(null);
  await gateway.restart();
  expect((await world.run(note(key))).body.decision).toBe('unknown_effect');
});

interface Started {
  readonly folder: string;
  readonly ready: Promise<unknown>;
  readonly ended: Promise<readonly unknown[]>;
  kill(signal: NodeJS.Signals): void;
}

/** A gateway whose configuration is the least, with another standard error. */
async function start(stderr: number | 'pipe', waitsForKey = false): Promise<Started> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-last-'));
  cleanUps.push(() => rm(folder, { recursive: true, force: true }));
  await writeFile(
    join(folder, 'gateway.yaml'),
    'server: { host: 127.0.0.1, port: 0 }\nstore: { kind: embedded, path: ./data }\nworkspaces: [ { id: demo, agents: [] } ]\n',
  );
  const firstKey = join(folder, 'first.key');
  if (waitsForKey) execFileSync('mkfifo', [firstKey]);
  const child = spawn(process.execPath, [LAUNCHER, 'start', '--config', 'gateway.yaml'], {
    cwd: folder,
    env: { ...process.env, ...(waitsForKey ? { SVC_BOOTSTRAP_ADMIN_KEY_FILE: firstKey } : {}) },
    stdio: ['ignore', 'pipe', stderr],
  });
  cleanUps.push(async () => child.kill('SIGKILL'));
  if (child.stdout === null) throw new Error('no standard output');
  return {
    folder,
    ready: once(child.stdout, 'data'),
    ended: once(child, 'exit'),
    kill: (signal) => void child.kill(signal),
  };
}

it('standard error takes nothing more (a full disk): the gateway serves, and ends when it is told to', async () => {
  const full = await open('/dev/full', 'w');
  cleanUps.push(() => full.close());
  const gateway = await start(full.fd);
  await gateway.ready;
  gateway.kill('SIGTERM');
  expect(await gateway.ended).toEqual([0, null]);
});

it('a start that waits for ever ends when it is told to', async () => {
  // Nobody writes into the file of the first key, a pipe: a thread waits for it, and keeps the process from an ordinary end.
  const gateway = await start('pipe', true);
  await until(() => existsSync(join(gateway.folder, 'data', 'store.db')));
  gateway.kill('SIGTERM');
  const begun = performance.now();
  await gateway.ended;
  expect(performance.now() - begun).toBeLessThan(30_000);
});

/** Runs a command whose standard output is read by nobody, after the first `lines` of it. */
async function unread(lines: number, ...words: readonly string[]): Promise<{ code: unknown; err: string }> {
  const child = spawn(process.execPath, [LAUNCHER, ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  cleanUps.push(async () => child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  let err = '';
  child.stderr.on('data', (piece: Buffer) => (err += piece.toString()));
  if (lines > 0) await once(child.stdout, 'data');
  child.stdout.destroy();
  const [code] = await ended;
  return { code, err };
}

it('who reads what a command prints may leave, as head does: the command ends quietly, with its own code', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'svc-unread-'));
  cleanUps.push(() => rm(folder, { recursive: true, force: true }));
  const receipt = join(folder, 'receipt');
  const trust = join(folder, 'keys');
  await writeFile(receipt, 'a.b.c');
  await writeFile(trust, '{"keys":[]}');
  expect(await unread(0, 'effects', '--help')).toEqual({ code: 0, err: '' });
  expect(await unread(0, 'verify', receipt, '--trust', trust)).toEqual({ code: 1, err: '' });
});

it('who reads a tail may leave: it ends with what is decided next', async () => {
  const world = await startWorld();
  cleanUps.push(() => world.close());
  const keyFile = join(world.gateway.folder, 'tail.key');
  await writeFile(keyFile, world.keys.account, { mode: 0o600 });
  const tail = unread(1, 'tail', '--url', world.gateway.url, '--workspace', 'demo', '--key-file', keyFile);
  let isOver = false;
  void tail.then(() => (isOver = true));
  await until(async () => {
    await world.run(note(freshKey()));
    return isOver;
  });
  expect(await tail).toEqual({ code: 0, err: '' });
});

it('what a full disk does not take of a command is said, and its code is 2', async () => {
  const full = await open('/dev/full', 'w');
  cleanUps.push(() => full.close());
  const child = spawn(process.execPath, [LAUNCHER, 'effects', '--help'], { stdio: ['ignore', full.fd, 'pipe'] });
  cleanUps.push(async () => child.kill('SIGKILL'));
  let err = '';
  child.stderr?.on('data', (piece: Buffer) => (err += piece.toString()));
  expect(await once(child, 'close')).toEqual([2, null]);
  expect(err).toMatch(/^svc: standard output cannot be written: ENOSPC/);
});
