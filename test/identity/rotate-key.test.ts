import { describe, expect, it } from 'vitest';
import type { KeyRecord } from '../../src/effects/model/key.ts';
import { rotateKey } from '../../src/identity/key-record.ts';
import { keyShelf, shelve } from './key-shelf.ts';

const shelf = keyShelf();
const ACTOR = { type: 'user', id: 'root' } as const;

/** A store that keeps an account of what is asked of it; `winner`: the successor that the old key has in the end. */
function store(old: KeyRecord, winner?: KeyRecord) {
  const asked: unknown[] = [];
  return {
    asked,
    async putKey({ id }: KeyRecord) {
      asked.push(['put', id]);
    },
    async endKey(id: string, end: unknown) {
      asked.push(['end', id, end]);
      return id === old.id ? { ...old, replacedBy: winner?.id ?? null } : null;
    },
  };
}

const { record: old } = shelve(shelf, 'account');
const { record: next } = shelve(shelf, 'account');
const { record: other } = shelve(shelf, 'account');

describe('a rotation', () => {
  it('puts the successor first, so that there is never none, and then ends the old key after the overlap', async () => {
    const at = store(old, next);
    expect(await rotateKey(at, old, next, 60_000, ACTOR)).toBe(true);
    expect(at.asked).toEqual([
      ['put', next.id],
      ['end', old.id, { kind: 'replaced', by: next.id, overlapMs: 60_000 }],
    ]);
  });

  it('that comes second leaves no key behind', async () => {
    for (const winner of [other, undefined]) {
      const at = store(old, winner);
      expect(await rotateKey(at, old, next, 60_000, ACTOR)).toBe(false);
      expect(at.asked.at(-1)).toEqual(['end', next.id, { kind: 'revoked' }]);
    }
  });

  it.each([
    ['was revoked', { revokedAt: 1 }],
    ['has a successor', { replacedBy: other.id }],
  ])('of a key that %s makes none', async (_, change) => {
    const at = store(old, next);
    expect(await rotateKey(at, { ...old, ...change }, next, 60_000, ACTOR)).toBe(false);
    expect(at.asked).toEqual([]);
  });
});
