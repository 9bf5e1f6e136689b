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
