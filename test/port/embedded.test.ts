import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { type EmbeddedRowsOptions, openEmbeddedRows } from '../../src/stores/embedded/open.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { reopening } from '../contract/reopening.ts';
import { compileStore } from '../stores/compiled.ts';
import type { Watched } from '../../src/stores/port.ts';
import { done, listOf, newPlace, type PortFixture, putOf } from './changes.ts';
import { describePort } from './port-contract.ts';

const compiled = compileStore([]);
afterAll(() => compiled.remove());

/** A list of this name ends the thread that reads it, a workspace the one that writes; a list that is named like a file is read when the file is there. */
const ENDS = 'ends-the-thread';
const LIST = 'list({ workspace, list, kind, order, from, to, after, limit, characters }) {';
compiled.alter(
  'src/stores/embedded/tables/reader.ts',
  LIST,
  `${LIST}
    const { existsSync } = process.getBuiltinModule('node:fs');
    if (list === '${ENDS}') process.exit();
    while (list.startsWith('/') && !existsSync(list));`,
);
const PRUNE = 'prune(workspace, limit) {';
compiled.alter(
  'src/stores/embedded/tables/session.ts',
  PRUNE,
  `${PRUNE}
    if (workspace === '${ENDS}') process.exit();`,
);
const openCompiled = await compiled.openEmbeddedRows();

async function fixture(
  open: typeof openEmbeddedRows,
  parts: Pick<EmbeddedRowsOptions, 'worker' | 'clock'>,
): Promise<Omit<PortFixture, 'setClock'>> {
  const path = storeFolder();
  const options: EmbeddedRowsOptions = { path, lockWaitMs: 0, ...parts };
  return reopening(
    () => open(options),
    () => rmSync(path, { recursive: true }),
  );
}

describePort(
  'the embedded store in this thread',
  async () => {
    let now = 1_750_000_000_000;
    const opened = await fixture(openEmbeddedRows, { worker: 'never', clock: () => now });
    return Object.assign(opened, {
      setClock(at: number) {
        now = Math.max(now, at);
      },
    });
  },
  null,
);

describePort(
  'the embedded store in threads of its own',
  async () => Object.assign(await fixture(openCompiled, { worker: 'auto' }), { setClock: null }),
  'the thread runs by the machine’s clock',
);

test('who reads a list holds up nobody who writes', async () => {
  const path = storeFolder();
  const store = await openCompiled({ path, lockWaitMs: 0, worker: 'auto' });
  const place = await newPlace(store, 'w');
  const go = join(path, 'go');
  let isListed = false;
  const list = store.list(listOf('w', go)).finally(() => {
    isListed = true;
  });
  for (let n = 0; n < 50; n += 1) done(await place.commit({ puts: [putOf('thing', `t${n}`, 'x')] }));
  expect(await place.row('thing', 't0')).not.toBeNull();
  expect(isListed).toBe(false);
  writeFileSync(go, '');
  expect(await list).toEqual({ entries: [], more: false });
  await store.close();
  rmSync(path, { recursive: true });
});

test('what a thread cannot do for who asks is no store that cannot be reached', async () => {
  const path = storeFolder();
  const store = await openCompiled({ path, lockWaitMs: 0, worker: 'auto' });
  const place = await newPlace(store, 'w');
  const half = place.commit({ puts: [putOf('thing', 'a', 'x', { enter: [{ list: 'l', at: 0.5 }] })] });
  await expect(half).rejects.toMatchObject({ name: 'Error', message: expect.stringContaining('0.5') });
  done(await place.commit({ puts: [putOf('thing', 'a', 'x')] }));
  await store.close();
  rmSync(path, { recursive: true });
});

test('when the thread that writes ends, it is started again, and still tells what is watched', async () => {
  const path = storeFolder();
  const store = await openCompiled({ path, lockWaitMs: 0, worker: 'auto' });
  const heard: Watched[] = [];
  store.watch(['thing'], (changed) => heard.push(changed));
  await expect(store.prune(ENDS, 1)).rejects.toMatchObject({ name: StoreUnavailable.name });
  const any = { workspace: null, kind: 'thing', id: null };
  await expect.poll(() => heard, { timeout: 10_000 }).toEqual([any]);
  const place = await newPlace(store, 'w');
  done(await place.commit({ puts: [putOf('thing', 'a', 'x')] }));
  await expect.poll(() => heard).toEqual([any, { workspace: 'w', kind: 'thing', id: 'a' }]);
  await store.close();
  rmSync(path, { recursive: true });
});

test('when the thread that reads ends, who waits for it is told, calls go on, and lists come back', async () => {
  const path = storeFolder();
  const store = await openCompiled({ path, lockWaitMs: 0, worker: 'auto' });
  const place = await newPlace(store, 'w');
  done(await place.commit({ puts: [putOf('thing', 'a', 'x', { enter: [{ list: 'l', at: 1 }] })] }));
  await expect(store.list(listOf('w', ENDS))).rejects.toMatchObject({ name: StoreUnavailable.name });
  expect(store.health().ready).toBe(true);
  done(await place.commit({ puts: [putOf('thing', 'b', 'x', { enter: [{ list: 'l', at: 2 }] })] }));
  const ids = (): Promise<readonly string[]> => place.ids('l').catch(() => []);
  await expect.poll(ids).toEqual(['a', 'b']);
  const last = place.ids('l');
  await store.close();
  expect(await last).toEqual(['a', 'b']);
  // Whoever closes the file last moves its journal into it: the copy of `store.db` is complete.
  expect(existsSync(join(path, 'store.db-wal'))).toBe(false);
  await expect(place.ids('l')).rejects.toMatchObject({ name: StoreUnavailable.name });
  rmSync(path, { recursive: true });
  // One that is asked though it has ended never answers.
}, 60_000);
