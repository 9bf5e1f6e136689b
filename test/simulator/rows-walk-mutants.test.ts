import { afterAll, expect, it, vi } from 'vitest';
import { MUTANTS } from './rows-mutants.ts';
import { firstBroken } from './rows-walks.ts';

afterAll(() => vi.restoreAllMocks());

it.each(Object.entries(MUTANTS))('seeded random walks catch the mutant: %s', async (_, made) => {
  expect(await firstBroken(await made())).not.toBeNull();
});
