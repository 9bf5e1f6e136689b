import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isoTime } from '../../src/effects/model/iso-time.ts';

describe('a time as text', () => {
  it('is what Date writes, whatever time came before it', () => {
    const near = fc.integer({ min: 1_795_000_000_000, max: 1_795_000_003_000 });
    const any = fc.integer({ min: -8.64e15, max: 8.64e15 });
    fc.assert(
      fc.property(fc.array(fc.oneof(near, any, fc.double({ min: -1e13, max: 1e13, noNaN: true }))), (times) => {
        for (const at of times) expect(isoTime(at)).toBe(new Date(at).toISOString());
      }),
    );
  });

  it('refuses what is no time', () => {
    expect(() => isoTime(Number.NaN)).toThrow(RangeError);
    expect(() => isoTime(8.64e15 + 1000)).toThrow(RangeError);
  });
});
