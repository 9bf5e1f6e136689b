import { expect, it } from 'vitest';
import { SCOPES } from './rows-scopes.ts';
import { search } from './rows-search.ts';
import { PRODUCT } from './rows-world.ts';

it.each(Object.entries(SCOPES))('every way of two gateways over one store: %s', async (_, scope) => {
  const { states, broken, history } = await search(scope, PRODUCT);
  console.log(`${states} states`);
  expect([broken, ...history]).toEqual([null]);
  expect(states).toBeGreaterThan(40);
});
