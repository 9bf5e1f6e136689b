import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type CompiledStore, compileStore } from '../stores/compiled.ts';
import { cutPower, type PowerReport } from './power/check.ts';
import { compileRecorder, record, type Recording, type Run } from './power/record.ts';

const WORKLOAD = 'test/torture/power/workload.ts';
const SEED = 20_261_122;

const TWICE: readonly Run[] = [
  { prefix: 'first', calls: 150, end: 'kill', failedSync: null },
  { prefix: 'second', calls: 100, end: 'close', failedSync: null },
];
/** @param failedSync by its number among those of the journal */
const failing = (failedSync: number): readonly Run[] => [
  { prefix: 'first', calls: 10_000, end: 'close', failedSync },
  { prefix: 'second', calls: 100, end: 'kill', failedSync: null },
  { prefix: 'third', calls: 30, end: 'close', failedSync: null },
];
const FAILING = failing(40);

/** Recordings, and cuts in each: in short form one; `npm run torture -- --power` asks for more. */
const CUTS = 40;
const ROUNDS = Array.from({ length: Number(process.env['SVC_POWER_ROUNDS'] ?? 1) }, (_, round) => round);

let store: CompiledStore;
let library = '';
beforeAll(() => {
  store = compileStore([WORKLOAD]);
  // So that the journal is brought into the file, and begun anew, often.
  store.alter('src/stores/embedded/engine.ts', 'CHECKPOINT_PAGES = 4000', 'CHECKPOINT_PAGES = 60');
  library = compileRecorder(dirname(store.file('settings.ts')));
});
afterAll(() => store.remove());

function cut({ log, root }: Recording, cuts: number, seed = SEED): Promise<PowerReport> {
  return cutPower(log, root, cuts, seed);
}

function expectWhole(report: PowerReport): void {
  if (ROUNDS.length > 1) console.log(JSON.stringify(report));
  expect(report).toMatchObject({ cuts: CUTS, broken: 0, faults: [] });
  expect(report.keysAskedAgain).toBeGreaterThan(1000);
  expect(report.stepsLookedFor).toBeGreaterThan(100);
}

describe('a power cut at any moment', () => {
  it.each(ROUNDS)('loses nothing that somebody was told, also after a process was killed (%i)', async (round) => {
    expectWhole(await cut(record(library, store.file(WORKLOAD), TWICE), CUTS, SEED + round));
  });

  it.each(ROUNDS)('nor after a sync has failed: the next start writes the journal anew (%i)', async (round) => {
    expectWhole(await cut(record(library, store.file(WORKLOAD), failing(40 + 7 * round)), CUTS, SEED + round));
  });
});

/** As a checkpoint of the product: rare. What is lost of the journal then stays lost for long. */
const FEW_CHECKPOINTS: Alteration = ['engine', 'CHECKPOINT_PAGES = 60', 'CHECKPOINT_PAGES = 4000'];

type Alteration = readonly [file: string, from: string, to: string];

/** Faults planted in a copy of the store, the runs that show them, and the cuts that they take. */
const MUTANTS: readonly (readonly [
  what: string,
  runs: readonly Run[],
  alterations: readonly Alteration[],
  cuts: number,
])[] = [
  [
    'a store that answers before the sync',
    TWICE,
    // The sync comes later than on the fastest disk, so that cuts come in between on each.
    [
      [
        'behind',
        'waiting.push(transaction);',
        'transaction.answer(); setTimeout(() => { waiting.push({ answer() {}, fail() {} }); if (!syncing) begin(); }, 20); return;',
      ],
    ],
    20,
  ],
  [
    'a start after a failed sync that goes on with the journal as it reads',
    FAILING,
    [
      ['boot', 'rewriteJournal(path, database, journal);', 'void journal;'],
      // Nor does the look at the format, which puts right what it opens.
      [
        '../../upgrade/upgrade-file',
        '(found === 0 && seeJournal(path) !== null)',
        '(found < 0 && path === String(null))',
      ],
      FEW_CHECKPOINTS,
    ],
    20,
  ],
  [
    'a store whose folders are not synced',
    TWICE,
    [['../private-folder', 'fsyncSync(descriptor);', 'void descriptor;']],
    20,
  ],
];

describe('is found to lose what was told', () => {
  it('by a disk that answers a sync of the journal before it has written', async () => {
    const report = await cut(record(library, store.file(WORKLOAD), TWICE, '-wal'), 20);
    expect(report.broken).toBeGreaterThan(0);
  });

  it.each(MUTANTS)('by %s', async (_what, runs, alterations, cuts) => {
    const sourceOf = (file: string): string => join('src/stores/embedded', `${file}.ts`);
    for (const [file, from, to] of alterations) store.alter(sourceOf(file), from, to);
    try {
      const report = await cut(record(library, store.file(WORKLOAD), runs), cuts);
      expect(report.broken).toBeGreaterThan(0);
    } finally {
      for (const [file, from, to] of alterations) store.alter(sourceOf(file), to, from);
    }
  });
});
