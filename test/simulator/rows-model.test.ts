import { afterAll, expect, it, vi } from 'vitest';
import { MUTANTS } from './rows-mutants.ts';
import { SCOPES } from './rows-scopes.ts';
import { search } from './rows-search.ts';
import { PRODUCT } from './rows-world.ts';

afterAll(() => vi.restoreAllMocks());

it.each(Object.entries(SCOPES))('every way of two gateways over one store: %s', async (_, scope) => {
  const { states, broken, history } = await search(scope, PRODUCT);
  console.log(`${states} states`);
  expect([broken, ...history]).toEqual([null]);
  expect(states).toBeGreaterThan(40);
});

it.each(Object.entries(MUTANTS))('some way catches the mutant: %s', async (_, made) => {
  const product = await made();
  for (const scope of Object.values(SCOPES)) if ((await search(scope, product)).broken !== null) return;
  expect.fail('no way shows that it breaks the promise');
});
