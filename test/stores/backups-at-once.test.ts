import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { checkBackup, writeBackup } from '../../src/stores/embedded/backup.ts';
import { RETENTION } from '../contract/fixture.ts';
import { dispatched } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const folder = mkdtempSync(join(tmpdir(), 'at-once-'));
const path = join(folder, 'store');
beforeAll(async () => {
  const store = await openEmbeddedStore({
    path,
    lockWaitMs: 0,
    worker: 'never',
    retention: RETENTION,
    keySeals: KEY_SEALS,
  });
  await dispatched(store);
  await store.close();
});
afterAll(() => rmSync(folder, { recursive: true }));

it('backups that begin in the same turn in an empty folder: one is whole, the others are refused and remove nothing', async () => {
  for (const name of ['one', 'two', 'three']) {
    const to = join(folder, name);
    mkdirSync(to);
    const ended = await Promise.allSettled([1, 2, 3].map(() => writeBackup(path, to, null)));
    const refusals = ended.flatMap((one) => (one.status === 'rejected' ? [String(one.reason)] : []));
    expect(refusals).toEqual(Array(2).fill(expect.stringContaining('is being written or was interrupted')));
    expect(readdirSync(to).toSorted()).toEqual(['backup.db', 'backup.json']);
    expect(Object.keys(checkBackup(to).files)).toEqual(['backup.db']);
  }
});

it('what stands in a folder is not touched, and the folder gets nothing of a backup', async () => {
  const to = join(folder, 'mine');
  mkdirSync(to);
  writeFileSync(join(to, 'notes.txt'), 'mine');
  await expect(writeBackup(path, to, null)).rejects.toThrow('is not empty');
  expect(readdirSync(to)).toEqual(['notes.txt']);
});
