import { expect, it } from 'vitest';
import type { Tombstone } from '../../src/effects/model/effect.ts';
import { derivedKeyOf, generationOf } from '../../src/effects/steps/generations.ts';
import { admitRequest } from '../contract/requests.ts';

const DERIVED = 'meant:note';
const REQUEST = admitRequest({ idempotencyKey: DERIVED });
const LAST: Tombstone = {
  id: 'eff_1',
  workspace: 'demo',
  idempotencyKey: `${DERIVED}.1`,
  fingerprint: 'f',
  attempt: 1,
  agentId: 'bot',
  tool: 'notes.add',
  target: 'notes',
  at: 1_000,
  outcome: { state: 'failed' },
};

it.each([
  [1, 2],
  [9, 10],
  [10, 11],
  [109, 110],
])('what is meant again after number %d is a call of its own: number %d', (last, next) => {
  const tombstone = { ...LAST, idempotencyKey: `${DERIVED}.${last}` };
  const at = (now: number) => generationOf({ now, binding: () => ({ kind: 'tombstone', tombstone }) }, REQUEST, 500);
  expect(at(1_499)).toMatchObject({ kind: 'joins' });
  expect(at(1_500)).toEqual({ kind: 'begins', key: `${DERIVED}.${next}` });
  expect(derivedKeyOf(`${DERIVED}.${next}`)).toBe(DERIVED);
});

it('what was never meant before is number 1', () => {
  expect(generationOf({ now: 0, binding: () => null }, REQUEST, 500)).toEqual({ kind: 'begins', key: `${DERIVED}.1` });
});
