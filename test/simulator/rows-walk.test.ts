import { expect, it } from 'vitest';
import { firstBroken } from './rows-walks.ts';
import { PRODUCT } from './rows-world.ts';

it('seeded random walks of several gateways over one store, through lost, late and refused messages, crashes, fail-overs, pauses, policies and votes break nothing', async () => {
  expect(await firstBroken(PRODUCT)).toBeNull();
});
