import { expect, it } from 'vitest';
import { activationToWire } from '../../src/effects/wire/policy-in-force.ts';

const BARE = { version: 'v1', at: 0, by: { type: 'key', id: 'key_1' }, how: 'rollback' } as const;
const SHOWN = { version: 'v1', at: '1970-01-01T00:00:00.000Z', by: { type: 'key', id: 'key_1' }, how: 'rollback' };

it('when a version was put in force, by whom and how is always told; why, and who confirmed it, where that is known', () => {
  expect(activationToWire(BARE)).toEqual(SHOWN);
  expect(activationToWire({ ...BARE, why: 'for June', confirmedBy: ['maria'], files: ['a.yaml'] })).toEqual({
    ...SHOWN,
    why: 'for June',
    confirmed_by: ['maria'],
    files: ['a.yaml'],
  });
});
