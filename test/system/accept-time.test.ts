import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { until } from '../redis/servers.ts';
import { startShifted } from '../redis/shifted-server.ts';
import { type Said, svc, svcBeside } from './command-line.ts';
import { startFleet } from './fleet.ts';
import { refund, startWorld } from './world.ts';

const AHEAD_MS = 400 * 86_400_000;

let folder = '';
const closers: (() => Promise<unknown>)[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-accept-time-'));
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

/** The clock goes ahead while the gateway runs, and an operator accepts it. */
async function acceptsTime(
  url: string,
  setAhead: (ms: number) => void,
  call: () => Promise<{ readonly status: number }>,
  accept: () => Promise<Said>,
): Promise<void> {
  const ready = async (): Promise<{ readonly status: number; readonly text: string }> => {
    const response = await fetch(`${url}/readyz`);
    return { status: response.status, text: await response.text() };
  };
  expect((await call()).status).toBe(200);
  setAhead(AHEAD_MS);
  await until(async () => (await ready()).text.includes('clock_ahead'));
  expect((await ready()).status).toBe(503);
  expect((await call()).status).toBe(503);
  const said = await accept();
  expect(said).toMatchObject({ code: 0, err: '' });
  expect(said.out).toMatch(
    /^The store goes on from \S+; before, it was \S+ there\. A gateway that runs takes it up\.$/m,
  );
  await until(async () => (await ready()).status === 200);
  expect((await call()).status).toBe(200);
  const again = await accept();
  expect(again.code).not.toBe(0);
  expect(again.err).toContain('there is nothing to accept');
}

it('svc store accept-time: the clock of this machine, beside a gateway that runs', async () => {
  const file = join(folder, 'ahead');
  writeFileSync(file, '0');
  const preload = pathToFileURL(join(process.cwd(), 'test', 'torture', 'shift-clock.mjs')).href;
  const env = { NODE_OPTIONS: `--import ${preload}`, SVC_TORTURE_CLOCK: file };
  const world = await startWorld({ env });
  closers.push(() => world.close());
  await acceptsTime(
    world.gateway.url,
    (ms) => writeFileSync(file, String(ms)),
    () => world.run(refund()),
    () => svc(world.gateway.folder, env, 'store', 'accept-time'),
  );
});

it('svc store accept-time: the clock of a Redis server', async () => {
  const server = await startShifted();
  closers.push(() => server.stop());
  const fleet = await startFleet({ gateways: 1, store: `url: "${server.url}", durability: fsync` });
  closers.push(() => fleet.close());
  const url = fleet.gateways[0]?.url ?? '';
  await acceptsTime(
    url,
    server.setAhead,
    () => fleet.run(0, refund()),
    () => svcBeside(fleet, 0, 'store', 'accept-time'),
  );
});
