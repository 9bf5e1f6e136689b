import { rmSync } from 'node:fs';
import { it } from 'vitest';
import { openEmbeddedRows } from '../../src/stores/embedded/open.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';
import { expectBroughtForward } from './form-1.ts';

it('records of form 1 in memory are brought forward at the first step in their workspace', async () => {
  const rows = emptyRows();
  let now = 1_750_000_000_000;
  await expectBroughtForward(async () => ({ ...mapStore(rows, () => (now += 1)), ...ALONE }));
});

it('records of form 1 in a file are brought forward at the first step in their workspace', async () => {
  const path = storeFolder();
  try {
    await expectBroughtForward(() => openEmbeddedRows({ path, lockWaitMs: 0, worker: 'never' }));
  } finally {
    rmSync(path, { recursive: true });
  }
});
