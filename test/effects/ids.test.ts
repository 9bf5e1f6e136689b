import { decodeTime } from 'ulid';
import { describe, expect, it, vi } from 'vitest';
import { newId, randomPooled } from '../../src/effects/run/ids.ts';

describe('ids', () => {
  it('are ULIDs in lower case with the time they were made', () => {
    const before = Date.now();
    const id = newId('eff');
    expect(id).toMatch(/^eff_[0-7][0-9a-hjkmnp-tv-z]{25}$/);
    const at = decodeTime(id.slice(4).toUpperCase());
    expect(at).toBeGreaterThanOrEqual(before - 1);
    expect(at).toBeLessThanOrEqual(Date.now());
  });

  it('grow, also within a millisecond, and are never the same', () => {
    const ids = Array.from({ length: 50_000 }, () => newId('eff'));
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.every((id, index) => index === 0 || id > (ids[index - 1] ?? ''))).toBe(true);
  });

  it('grow where somebody sets the clock back, too', () => {
    const before = newId('eff');
    const clock = vi.spyOn(Date, 'now').mockReturnValue(Date.now() - 3_600_000);
    try {
      expect(newId('eff') > before).toBe(true);
    } finally {
      clock.mockRestore();
    }
  });

  it('take from the pool at most what it has at a time: beyond it would be memory that nobody has filled', () => {
    expect(new Set(Array.from({ length: 100 }, () => randomPooled(1024).toString('hex'))).size).toBe(100);
    expect(() => randomPooled(1025)).toThrow(RangeError);
  });
});
