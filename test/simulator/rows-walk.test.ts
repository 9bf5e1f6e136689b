import { afterAll, describe, expect, it, vi } from 'vitest';
import { MUTANTS } from './rows-mutants.ts';
import { scopeOf, walk } from './rows-walks.ts';
import { PRODUCT, type Product } from './rows-world.ts';

afterAll(() => vi.restoreAllMocks());

const WALKS = 150;

async function firstBroken(product: Product): Promise<readonly string[] | null> {
  for (let seed = 1; seed <= WALKS; seed += 1) {
    const found = await walk(seed, scopeOf(seed), product);
    if (found !== null) return [`seed ${seed}: ${found.broken}`, ...found.history];
  }
  return null;
}

describe('seeded random walks of several gateways over one store', () => {
  it('through lost, late and refused messages, crashes, fail-overs, pauses, policies and votes break nothing', async () => {
    expect(await firstBroken(PRODUCT)).toBeNull();
  });

  it.each(Object.entries(MUTANTS))('catch the mutant: %s', async (_, made) => {
    expect(await firstBroken(await made())).not.toBeNull();
  });
});
