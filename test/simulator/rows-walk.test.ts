import { afterAll, describe, expect, it, vi } from 'vitest';
import { MUTANTS } from './rows-mutants.ts';
import { claimsOf, scopeOf, walk } from './rows-walks.ts';
import { PRODUCT, type Product, type Scope } from './rows-world.ts';

afterAll(() => vi.restoreAllMocks());

const WALKS = 150;
const WALKS_OF_CLAIMS = 50;

async function firstBroken(product: Product): Promise<readonly string[] | null> {
  const all = (of: (seed: number) => Scope, walks: number): readonly (readonly [number, Scope])[] =>
    Array.from({ length: walks }, (_, n) => [n + 1, of(n + 1)]);
  for (const [seed, scope] of [...all(claimsOf, WALKS_OF_CLAIMS), ...all(scopeOf, WALKS)]) {
    const found = await walk(seed, scope, product);
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
