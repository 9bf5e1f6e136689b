import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startSweeper } from '../../src/gateway/sweeper.ts';
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
