import { describe, expect, it } from 'vitest';
import { createForgeryAlarm, createLateKeySeals } from '../../src/gateway/key-seals.ts';
import { keyShelf, shelve } from '../identity/key-shelf.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const { record } = shelve(keyShelf(), 'account');

describe('seals of keys before the master secret is known', () => {
  it('read no key and write none', () => {
    const seals = createLateKeySeals(() => undefined);
    for (const act of [
      () => seals.seal(record),
      () => seals.fits(record, 'seal'),
      () => seals.sealRow('row', 'text'),
      () => seals.fitsRow('row', 'text', 'seal'),
    ])
      expect(act).toThrow('before the master secret');
  });

  it('judge by the secret once it is known, and name each record that does not count', () => {
    const unfit: unknown[] = [];
    const seals = createLateKeySeals((of, why) => unfit.push([of, why]));
    seals.use({
      ...KEY_SEALS,
      judge: (_key, seal) => (seal === 'good' ? 'sound' : seal === 'old' ? 'unknown_secret' : 'forged'),
      judgeRow: (_row, _text, seal) => (seal === 'good' ? 'sound' : 'forged'),
    });
    expect(['good', 'old', 'bad'].map((seal) => seals.fits(record, seal))).toEqual([true, false, false]);
    expect(['good', 'bad'].map((seal) => seals.fitsRow('pause demo', 'text', seal))).toEqual([true, false]);
    expect(unfit).toEqual([
      [record, 'unknown_secret'],
      [record, 'forged'],
      [{ row: 'pause demo' }, 'forged'],
    ]);
  });
});

describe('the alarm of forged records', () => {
  it('counts each use of a forged one, and logs each record once a minute', () => {
    let now = 0;
    let counted = 0;
    const told: unknown[] = [];
    const alarm = createForgeryAlarm({
      count: () => (counted += 1),
      report: (of, why) => told.push([of, why]),
      elapsed: () => now,
    });
    alarm(record, 'forged');
    alarm(record, 'forged');
    alarm({ ...record, id: 'key_another00001' }, 'forged');
    alarm({ row: 'pause demo' }, 'forged');
    alarm({ row: 'policy' }, 'unknown_secret');
    expect(counted).toBe(4);
    expect(told).toEqual([
      [{ key_id: record.id }, 'forged'],
      [{ key_id: 'key_another00001' }, 'forged'],
      [{ record: 'pause demo' }, 'forged'],
      [{ record: 'policy' }, 'unknown_secret'],
    ]);
    now = 59_999;
    alarm(record, 'forged');
    expect([counted, told.length]).toEqual([5, 4]);
    now = 60_000;
    alarm(record, 'forged');
    expect([counted, told.length]).toEqual([6, 5]);
  });

  it('remembers no more than a thousand records, whatever stands in the store', () => {
    let told = 0;
    const alarm = createForgeryAlarm({ count: () => undefined, report: () => (told += 1), elapsed: () => 0 });
    for (let n = 0; n < 1_000; n += 1) alarm({ row: `row ${n}` }, 'forged');
    alarm({ row: 'row 0' }, 'forged');
    expect(told).toBe(1_000);
    alarm({ row: 'one more' }, 'forged');
    alarm({ row: 'row 0' }, 'forged');
    expect(told).toBe(1_002);
  });
});
