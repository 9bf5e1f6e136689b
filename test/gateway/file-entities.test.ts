import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import type { PackedEntities } from '../../src/brain/packed-entities.ts';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { FileEntities } from '../../src/gateway/file-entities.ts';
import { type InForce, readFiles } from '../../src/gateway/in-force.ts';
import { createLogger } from '../../src/telemetry/logger.ts';

const folder = mkdtempSync(join(tmpdir(), 'svc-file-entities-'));
afterAll(() => rmSync(folder, { recursive: true }));

let inForce: InForce;
beforeAll(async () => {
  const config = join(folder, 'gateway.yaml');
  writeFileSync(config, `store: { path: "${folder}/data" }\nworkspaces: [ { id: one }, { id: two } ]\n`);
  inForce = await readFiles(config, {});
});

/** What is in force when files say this. */
const saying = (digest: string): InForce => ({ ...inForce, entities: { digest, packed: packed(digest) } });
const packed = (digest: string): PackedEntities => ({
  digest,
  byWorkspace: new Map([['one', { digest, pieces: [] }]]),
});

/** Loads as they were asked for, and what each comes to. */
let loads: string[];
let faults: (Error | Promise<void>)[];
let alerts: number;
let warned: string[];
let entities: FileEntities;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  loads = [];
  faults = [];
  alerts = 0;
  warned = [];
});
afterEach(async () => {
  await entities.stop();
  vi.useRealTimers();
});

function open(isFleet = false): void {
  entities = new FileEntities({
    loader: {
      async load(workspace, files, older) {
        loads.push(`${workspace} ${files?.digest ?? 'none'} ${older}`);
        const next = faults.shift();
        if (next instanceof Error) throw next;
        await next;
        return older === 'leave' ? { kind: 'older' } : { kind: 'loaded', put: 1, removed: 0 };
      },
    },
    isFleet,
    logger: createLogger({ level: 'warn', sink: { write: (line) => void warned.push(line) } }),
    alert: () => (alerts += 1),
  });
}

async function settle(): Promise<void> {
  for (let turns = 0; turns < 10; turns += 1) await new Promise((resolve) => setImmediate(resolve));
}

const AWAY = new StoreUnavailable('away');

it('each workspace is brought to what the files say, also one of which they say nothing; what is in force keeps none of it', async () => {
  open();
  const taken = entities.take(saying('first'));
  expect(taken.entities).toEqual({ digest: 'first', packed: null });
  expect(loads).toEqual([]);
  await entities.begin();
  expect(loads).toEqual(['one first load', 'two none load']);
  expect([entities.problem(), alerts]).toEqual([null, 0]);
  // Files that say the same are none to read in.
  const same = { ...inForce, entities: { digest: 'first', packed: null } };
  expect(entities.take(same)).toBe(same);
  await settle();
  expect(loads).toHaveLength(2);
});

it('one of several gateways leaves at its start what others have read in since, and says so, and not when its files change', async () => {
  open(true);
  entities.take(saying('first'));
  await entities.begin();
  expect(warned.map((line) => JSON.parse(line))).toEqual(
    ['one', 'two'].map((workspace) =>
      expect.objectContaining({ workspace, msg: expect.stringContaining('those stay') }),
    ),
  );
  entities.take(saying('second'));
  await settle();
  expect(loads).toEqual(['one first leave', 'two none leave', 'one second load', 'two none load']);
  expect(warned).toHaveLength(2);
});

it('a store that is away is tried again a second later, and that it is so is told once', async () => {
  open();
  await entities.begin();
  faults = [AWAY, AWAY];
  entities.take(saying('first'));
  await settle();
  expect([loads.length, alerts, entities.problem() === null]).toEqual([1, 1, false]);
  vi.advanceTimersByTime(999);
  await settle();
  expect(loads).toHaveLength(1);
  vi.advanceTimersByTime(1);
  await settle();
  expect([loads.length, alerts, entities.problem() === null]).toEqual([2, 1, false]);
  vi.advanceTimersByTime(1_000);
  await settle();
  expect(loads.slice(2)).toEqual(['one first load', 'two none load']);
  expect([alerts, entities.problem()]).toEqual([1, null]);
  faults = [AWAY];
  entities.take(saying('second'));
  await settle();
  expect(alerts).toBe(2);
});

it('files that say too much are not tried again until they change', async () => {
  open();
  faults = [new InvalidFiles([], new Map())];
  entities.take(saying('too much'));
  await expect(entities.begin()).rejects.toBeInstanceOf(InvalidFiles);
  open();
  await entities.begin();
  loads = [];
  faults = [new InvalidFiles([], new Map())];
  entities.take(saying('too much'));
  await settle();
  vi.advanceTimersByTime(60_000);
  await settle();
  expect([loads, alerts]).toEqual([['one too much load'], 1]);
  expect(entities.problem()).toMatch(/not in the store/);
  entities.take(saying('less'));
  await settle();
  expect([loads.slice(1), entities.problem()]).toEqual([['one less load', 'two none load'], null]);
});

it('what is taken over while others are read in comes next, and one thing at a time', async () => {
  open();
  await entities.begin();
  let release = (): void => undefined;
  faults = [new Promise((resolve) => (release = resolve))];
  entities.take(saying('first'));
  entities.take(saying('second'));
  await settle();
  expect(loads).toEqual(['one first load']);
  release();
  await settle();
  expect(loads).toEqual(['one first load', 'two none load', 'one second load', 'two none load']);
});

it('a gateway that stops waits for what runs, and begins nothing more', async () => {
  open();
  await entities.begin();
  let release = (): void => undefined;
  faults = [new Promise((resolve) => (release = resolve)), AWAY];
  entities.take(saying('first'));
  await settle();
  let isStopped = false;
  const stopping = entities.stop().then(() => (isStopped = true));
  entities.take(saying('second'));
  await settle();
  expect(isStopped).toBe(false);
  release();
  await stopping;
  vi.advanceTimersByTime(10_000);
  await settle();
  expect([alerts, loads.filter((load) => load.includes('second'))]).toEqual([0, []]);
});
