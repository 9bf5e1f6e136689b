import { createSecretKey } from 'node:crypto';
import { rmSync } from 'node:fs';
import { expect, it } from 'vitest';
import type { Lease } from '../../src/effects/model/effect.ts';
import { startEngine } from '../../src/stores/embedded/engine.ts';
import { type Boot, endedBefore } from '../../src/stores/embedded/ended.ts';
import { keepKey, type Program, type ProgramKeys } from '../../src/stores/open-rows.ts';
import { storeFolder } from '../contract/embedded-store.ts';

const lease = (admittedAt: number, leaseEnd: number, quiesceUntil: number): Lease => ({
  fence: { epoch: 1, n: 1, nonce: 'n' },
  owner: '',
  admittedAt,
  dispatchBy: admittedAt,
  leaseEnd,
  quiesceUntil,
});

it('what was admitted before a boot has ended; it is quiet after its time, and after what it may take from the boot on', () => {
  const ended = endedBefore(() => ({ at: 1_000, unwatchedMs: 50 }));
  expect(ended.quietAt('w', lease(1_000, 2_000, 3_000))).toBeNull();
  expect(ended.quietAt('w', lease(999, 2_000, 3_000))).toBe(3_050);
  // Its lease was over long before: another boot may have come in between.
  expect(ended.quietAt('w', lease(10, 500, 800))).toBe(1_350);
});

it('what was declared after one boot says nothing of what ended with the next', () => {
  let boot: Boot = { at: 1_000, unwatchedMs: 0 };
  const ended = endedBefore(() => boot);
  ended.none('w');
  expect([ended.any('w'), ended.any('other')]).toEqual([false, true]);
  boot = { at: 2_000, unwatchedMs: 0 };
  expect(ended.any('w')).toBe(true);
  expect(ended.quietAt('w', lease(1_500, 2_500, 2_600))).toBe(2_600);
});

it('the two newest signing keys are kept, the one in use now as the newest', () => {
  const keys: ProgramKeys = new Map();
  const key = createSecretKey(Buffer.alloc(32));
  for (const name of ['one', 'two', 'one', 'three']) keepKey(keys, name, key);
  expect([...keys.keys()]).toEqual(['one', 'three']);
});

it('a row that is made anew, and is there already, fails alone', async () => {
  const path = storeFolder();
  let by = 'first';
  const program: Program = () => (store, id) => {
    const rows = store.in('w');
    if (id.startsWith('look ')) return rows.row('note', id.slice('look '.length))?.text ?? 'absent';
    rows.put('note', id, `${id} by the ${by}`, [], []);
    return 'put';
  };
  const started = async () => {
    const options = {
      lockWaitMs: 0,
      clock: Date.now,
      maxClockJumpMs: 1e12,
      isOwnThread: true,
      program,
      keys: new Map(),
    };
    const engine = await startEngine({ path, ...options }, () => {});
    const ask = (request: string): Promise<string> =>
      new Promise((resolve, reject) => engine.handlers.program(request, resolve, reject));
    return { ask, close: engine.close };
  };
  const first = await started();
  expect(await Promise.all([first.ask('one'), first.ask('two')])).toEqual(['put', 'put']);
  await first.close();
  // What was looked at before is forgotten, so nothing but the file knows of it.
  const then = await started();
  by = 'second';
  const asked = await Promise.allSettled([then.ask('three'), then.ask('one'), then.ask('four')]);
  expect(asked.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(await Promise.all(['one', 'two', 'three', 'four'].map((id) => then.ask(`look ${id}`)))).toEqual([
    'one by the first',
    'two by the first',
    'three by the second',
    'four by the second',
  ]);
  await then.close();
  rmSync(path, { recursive: true });
});
