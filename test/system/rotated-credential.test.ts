import { mkdtempSync, rmSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { send } from './gateway.ts';
import { freshKey, startWorld, type World, worldFiles } from './world.ts';

const ROTATIONS = 4;
/** Callers at once: by the effects API, by a governed route, and by reads that stream. */
const CALLERS = 6;

const folder = mkdtempSync(join(tmpdir(), 'svc-token-'));
const file = join(folder, 'token');

let world: World;
beforeAll(async () => {
  await rotate(0);
  world = await startWorld({
    files(url) {
      const { config, policies } = worldFiles(url);
      const given = `timeout: 10s, credentials: { header: X-Upstream-Token, file: ${JSON.stringify(file)} } } ]`;
      return { config: config.replace('timeout: 10s } ]', given), policies };
    },
  });
});
afterAll(async () => {
  await world.close();
  rmSync(folder, { recursive: true });
});

function token(generation: number): string {
  return `token-of-generation-${generation}`;
}

/** Whole, as whoever rotates secrets does it. */
async function rotate(generation: number): Promise<void> {
  await writeFile(`${file}.new`, `${token(generation)}\n`);
  await rename(`${file}.new`, file);
}

/** One call whose request to the upstream can be found by a name. @returns what went wrong, or `null` */
async function callOnce(by: number, name: string): Promise<string | null> {
  const { url } = world.gateway;
  const answer =
    by % 3 === 0
      ? await world.run({ tool: 'notes.add', params: { text: name }, idempotency_key: name })
      : by % 3 === 1
        ? await send(url, world.keys.bot, 'POST', '/payments/v1/notes', { text: name }, { 'idempotency-key': name })
        : await send(url, world.keys.bot, 'GET', `/payments/v1/payments/${name}`);
  return answer.status < 300 ? null : `${name}: ${answer.status} ${JSON.stringify(answer.body)}`;
}

test('a credential that is rotated under load: each call carries the old one or the new one, the new one from then on', async () => {
  /** Of each call: the rotations that were begun, and those that were in force, before it; and begun after it. */
  const calls: { readonly name: string; readonly inForce: number; readonly begun: number }[] = [];
  const faults: string[] = [];
  let begun = 0;
  let inForce = 0;
  let over = false;
  const callers = Array.from({ length: CALLERS }, async (_, by) => {
    while (!over) {
      const name = `call-${by}-${freshKey()}`;
      const before = inForce;
      const fault = await callOnce(by, name);
      if (fault !== null) faults.push(fault);
      calls.push({ name, inForce: before, begun });
    }
  });
  const more = async (): Promise<void> => {
    const enough = calls.length + 5 * CALLERS;
    await vi.waitFor(() => expect(calls.length).toBeGreaterThan(enough), { timeout: 60_000, interval: 5 });
  };
  const RELOADED = 'configuration and policies reloaded';
  const said = (): number => world.gateway.log().split(RELOADED).length;
  await more();
  for (let generation = 1; generation <= ROTATIONS; generation += 1) {
    const before = said();
    begun = generation;
    await rotate(generation);
    await vi.waitFor(() => expect(said()).toBeGreaterThan(before), { timeout: 60_000, interval: 2 });
    inForce = generation;
    await more();
  }
  over = true;
  await Promise.all(callers);
  expect(faults).toEqual([]);

  const { requests } = await world.upstream.ledger();
  const sent = new Map<string, unknown>();
  for (const { path, text, headers } of requests)
    for (const [name = ''] of `${path} ${text}`.matchAll(/call-\d+-key-\d+-\d+/g)) {
      expect(sent.has(name), `${name} was sent once`).toBe(false);
      sent.set(name, headers['x-upstream-token']);
    }
  const ofEach = Array.from({ length: ROTATIONS + 1 }, () => 0);
  const wrong: string[] = [];
  for (const { name, inForce: least, begun: most } of calls) {
    const carried = /^token-of-generation-(\d+)$/.exec(String(sent.get(name)))?.[1];
    const generation = Number(carried ?? Number.NaN);
    if (!(generation >= least && generation <= most))
      wrong.push(`${name}: ${String(sent.get(name))}, not ${least}–${most}`);
    else ofEach[generation] = (ofEach[generation] ?? 0) + 1;
  }
  expect(wrong).toEqual([]);
  expect(Math.min(...ofEach)).toBeGreaterThan(CALLERS);
  // Nobody is shown a secret.
  expect(world.gateway.log()).not.toContain('token-of-generation');
});
