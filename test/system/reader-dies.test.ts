import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { startWorld, type World } from './world.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 60_000, interval: 20 } as const;

let world: World;
beforeAll(async () => {
  world = await startWorld({ entry: join(process.cwd(), 'test', 'system', 'dying-reader-gateway.mjs') });
});
afterAll(() => world.close());

async function notes(): Promise<readonly { readonly part: string; readonly message: string }[]> {
  const response = await fetch(`${world.gateway.url}/readyz`);
  expect(response.status).toBe(200);
  const body = (await response.json()) as { notes?: { part: string; message: string }[] };
  return body.notes ?? [];
}

it('files that a thread died over are read again by themselves, later each time, and /readyz says so until they are', async () => {
  const { gateway } = world;
  expect(await notes()).toEqual([]);
  const file = join(gateway.policyFolder, 'world.yaml');
  const good = await readFile(file, 'utf8');
  // The next two threads die.
  await writeFile(join(gateway.folder, 'dies'), '..');
  await writeFile(file, `${good}  - { id: no-notes, effect: deny, match: { tools: [notes.add] } }\n`);
  await vi.waitFor(
    async () =>
      expect(await notes()).toEqual([
        {
          part: 'configuration',
          since: expect.any(String),
          message: expect.stringMatching(/could not be read.*tried again by themselves/),
        },
      ]),
    PATIENT,
  );
  // Nothing changes the files from here on.
  await vi.waitFor(async () => expect(await notes()).toEqual([]), PATIENT);
  const { body } = await world.run({ tool: 'notes.add', params: { text: 'x' }, idempotency_key: 'after' });
  expect(body).toMatchObject({ decision: 'denied_policy', reason: { rule: 'world/no-notes' } });
  const waits = [...gateway.log().matchAll(/"retry_after_ms":(\d+)/g)].map(([, ms]) => Number(ms));
  expect(waits).toEqual([1000, 2000]);
  expect(gateway.log()).toContain('ended with code 3');
});
