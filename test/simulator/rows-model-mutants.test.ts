import { afterAll, expect, it, vi } from 'vitest';
import { MUTANTS } from './rows-mutants.ts';
import { SCOPES } from './rows-scopes.ts';
import { search } from './rows-search.ts';

afterAll(() => vi.restoreAllMocks());

it.each(Object.entries(MUTANTS))('some way catches the mutant: %s', async (_, made) => {
  const product = await made();
  for (const scope of Object.values(SCOPES)) if ((await search(scope, product)).broken !== null) return;
  expect.fail('no way shows that it breaks the promise');
});
