import { decodeTime } from 'ulid';
import { describe, expect, it } from 'vitest';
import { newId } from '../../src/effects/run/ids.ts';

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
});
