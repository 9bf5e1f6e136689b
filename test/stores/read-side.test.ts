import { copyFileSync, readdirSync, readlinkSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import { openEmbeddedRows } from '../../src/stores/embedded/open.ts';
import { openReads } from '../../src/stores/embedded/read-side.ts';
import { asking } from '../../src/stores/threads/operations.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { done, listOf, newPlace, putOf } from '../port/changes.ts';

it('what reads for people opens the file anew after a look at it has failed', async () => {
  const path = storeFolder();
  const file = join(path, 'store.db');
  const store = await openEmbeddedRows({ path, lockWaitMs: 0, worker: 'never' });
  const place = await newPlace(store, 'w');
  done(await place.commit({ puts: [putOf('thing', 'a', 'x', { enter: [{ list: 'l', at: 1 }] })] }));
  await store.close();
  copyFileSync(file, `${file}.copy`);
  const reads = openReads(path, await loadDriver());
  const look = asking(reads.handlers);
  const row = () => look('rows', { workspace: 'w', names: [{ kind: 'thing', id: 'a' }] });
  expect(await look('list', listOf('w', 'l'))).toMatchObject({ entries: [{ id: 'a' }] });
  truncateSync(file, 0);
  await expect(row()).rejects.toMatchObject({ name: StoreUnavailable.name });
  renameSync(`${file}.copy`, file);
  expect(await row()).toMatchObject([{ text: 'x' }]);
  reads.close();
  rmSync(path, { recursive: true });
});

it('a file that cannot be read takes one descriptor at most, however often somebody looks', async () => {
  const path = storeFolder();
  writeFileSync(join(path, 'store.db'), 'no database'.repeat(1_000));
  const reads = openReads(path, await loadDriver());
  const look = asking(reads.handlers);
  for (let count = 0; count < 20; count += 1)
    await expect(look('rows', { workspace: 'w', names: [{ kind: 'thing', id: 'a' }] })).rejects.toMatchObject({
      name: StoreUnavailable.name,
    });
  expect(openIn(path)).toBeLessThan(2);
  reads.close();
  rmSync(path, { recursive: true });
});

/** How many descriptors of this process are of files in a folder. */
function openIn(folder: string): number {
  const fds = readdirSync('/proc/self/fd');
  return fds.filter((fd) => targetOf(fd).startsWith(folder)).length;
}

function targetOf(fd: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    // That of the listing itself.
    return '';
  }
}
