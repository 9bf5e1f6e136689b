import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { failing, type PowerBench, preparePower, SEED, TWICE } from './power/bench.ts';
import { cutPower, type PowerReport } from './power/check.ts';
import { ANSWERS_EARLY } from './power/early-answers.ts';
import type { Run } from './power/record.ts';

let bench: PowerBench;
beforeAll(() => {
  bench = preparePower();
});
afterAll(() => bench.store.remove());

/** How often a fault is looked for: where a recording falls and what it syncs depends on how busy the machine is. */
const TRIES = 5;

/** Cuts the power in recordings until something is found to be lost. */
async function expectLoss(runs: readonly Run[], cuts: number, lie?: string): Promise<void> {
  const reports: PowerReport[] = [];
  for (let seed = SEED; seed < SEED + TRIES; seed += 1) {
    const { log, root } = bench.recorded(runs, lie);
    const report = await cutPower(log, root, cuts, seed);
    if (report.broken > 0) return;
    reports.push(report);
  }
  expect.fail(`nothing was found to be lost: ${JSON.stringify(reports)}`);
}

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
    // A checkpoint would sync as well.
    [...ANSWERS_EARLY.map(([from, to]): Alteration => ['sync-queue', from, to]), FEW_CHECKPOINTS],
    20,
  ],
  [
    'a start after a failed sync that goes on with the journal as it reads',
    failing(40),
    [['boot', 'rewriteJournal(path, database, journal);', 'void journal;'], FEW_CHECKPOINTS],
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
    await expectLoss(TWICE, 20, '-wal');
  });

  it.each(MUTANTS)('by %s', async (_what, runs, alterations, cuts) => {
    const sourceOf = (file: string): string => join('src/stores/embedded', `${file}.ts`);
    for (const [file, from, to] of alterations) bench.store.alter(sourceOf(file), from, to);
    try {
      await expectLoss(runs, cuts);
    } finally {
      for (const [file, from, to] of alterations) bench.store.alter(sourceOf(file), to, from);
    }
  });
});
