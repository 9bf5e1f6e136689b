import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { retentionNotes, startSweeper } from '../../src/gateway/sweeper.ts';
import { settlementTexts } from '../../src/records/settlement-text.ts';
import { openSpillJournal } from '../../src/stores/journal/spill.ts';
import { type Rig, startRig } from '../api/rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

it('a settlement that cannot be read keeps nothing else from its turn, and is told of', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-sweep-'));
  writeFileSync(join(folder, '0.settlement.json'), '{"half');
  const told: string[] = [];
  let swept: () => void = () => undefined;
  const sweeping = new Promise<void>((resolve) => {
    swept = resolve;
  });
  const store = {
    ...rig.core.store,
    async sweep(limit: number) {
      const report = await rig.core.store.sweep(limit);
      swept();
      return report;
    },
  };
  const sweeper = startSweeper(
    { ...rig.core, store },
    rig.people,
    await openSpillJournal(folder, settlementTexts),
    5,
    (error) => told.push(String(error)),
  );
  await sweeping;
  await sweeper.stop();
  expect(told[0]).toContain('0.settlement.json');
  rmSync(folder, { recursive: true });
});

it('records that stay because nobody knows what became of them are named in /readyz', () => {
  const report = { lost: 0, approvalsExpired: 0, aged: 0 };
  expect(retentionNotes(null)).toEqual([]);
  expect(retentionNotes({ ...report, unsettled: 0, reached: 5 })).toEqual([]);
  const [note] = retentionNotes({ ...report, unsettled: 1_200, reached: 1_750_000_000_000 });
  expect(note).toMatchObject({ part: 'retention', message: expect.stringMatching(/^1200 effects .*2025-06-15T/) });
});
