import { expect, test } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { createStepRunner } from '../../src/records/runner.ts';
import { createSessionStore } from '../../src/records/sessions.ts';
import { emptyRows, mapStore } from '../port/map-rows.ts';

function sessions() {
  const rows = emptyRows();
  let now = 1_750_000_000_000;
  const store = mapStore(rows, () => now);
  const kept = createSessionStore(store, createStepRunner(store));
  return {
    kept,
    put: (id: string, forMs: number, keyId = id) =>
      kept.putSession(id, { text: `of ${id}`, until: now + forMs, keyId }),
    pass: (ms: number) => {
      now += ms;
    },
    /** Ids of all that is kept, over or not. */
    ids: () => [...(rows.spaces.get(INSTALLATION)?.rows.values() ?? [])].map(({ id }) => id).toSorted(),
  };
}

test('whoever signs in removes ten sessions that are over, of anybody, and none that is not', async () => {
  const { put, pass, ids } = sessions();
  for (let n = 10; n < 22; n += 1) await put(`s${n}`, 1_000 + n);
  await put('stays', 1_022);
  pass(1_021);
  await put('next', 1_000);
  expect(ids()).toEqual(['next', 's20', 's21', 'stays']);
  await put('last', 1_000);
  expect(ids()).toEqual(['last', 'next', 'stays']);
});

test('a session that is taken is gone, also where it was over', async () => {
  const { kept, put, pass, ids } = sessions();
  await put('a', 1_000);
  await put('b', 1_000);
  expect(await kept.takeSession('a')).toBe('of a');
  pass(1_000);
  expect(await kept.takeSession('b')).toBeNull();
  expect(ids()).toEqual([]);
});
