import { dirname } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type CompiledStore, compileStore } from '../stores/compiled.ts';
import { cutPowerOfRows } from './power/check.ts';
import { ANSWERS_EARLY } from './power/early-answers.ts';
import { compileRecorder, record, type Run } from './power/record.ts';

const LOAD = 'test/port/load.ts';
const SEED = 20_261_122;
const CUTS = 40;
const ENGINE = 'src/stores/embedded/engine.ts';

const TWICE: readonly Run[] = [
  { prefix: 'first', calls: 200, end: 'kill', failedSync: null },
  { prefix: 'second', calls: 150, end: 'close', failedSync: null },
];
const FAILING: readonly Run[] = [
  { prefix: 'first', calls: 10_000, end: 'close', failedSync: 40 },
  { prefix: 'second', calls: 150, end: 'kill', failedSync: null },
  { prefix: 'third', calls: 30, end: 'close', failedSync: null },
];

let store: CompiledStore;
let library = '';
beforeAll(() => {
  store = compileStore([LOAD]);
  // So that the journal is brought into the file, and begun anew, often.
  store.alter(ENGINE, 'CHECKPOINT_PAGES = 4000', 'CHECKPOINT_PAGES = 60');
  library = compileRecorder(dirname(store.file('settings.ts')));
});
afterAll(() => store.remove());

it.each([
  ['after a process was killed', TWICE],
  ['after a sync has failed', FAILING],
] as const)('a power cut at any moment takes nothing of the rows that somebody was told, also %s', async (_, runs) => {
  const { log, root } = record(library, store.file(LOAD), runs);
  const { marks, faults } = await cutPowerOfRows(log, root, CUTS, SEED);
  expect(faults).toEqual([]);
  expect(marks).toBeGreaterThan(2_000);
});

it('a store that answers before the sync is found out', async () => {
  const file = 'src/stores/embedded/sync-queue.ts';
  const checkpoints = ['CHECKPOINT_PAGES = 60', 'CHECKPOINT_PAGES = 4000'] as const;
  // A checkpoint would sync as well.
  store.alter(ENGINE, ...checkpoints);
  for (const [from, to] of ANSWERS_EARLY) store.alter(file, from, to);
  try {
    const { log, root } = record(library, store.file(LOAD), TWICE);
    expect((await cutPowerOfRows(log, root, 20, SEED)).faults.length).toBeGreaterThan(0);
  } finally {
    for (const [from, to] of ANSWERS_EARLY) store.alter(file, to, from);
    store.alter(ENGINE, checkpoints[1], checkpoints[0]);
  }
});
