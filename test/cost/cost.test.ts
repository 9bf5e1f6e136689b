import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compare, lower } from './ceilings.ts';
import { costsOf, listingOf } from './measure.ts';
import { type CostWorld, DOORS, startCostWorld, STORES } from './world.ts';

/** What `run.mjs` was asked for besides the comparison. */
const wanted = process.env['SVC_COST'];

// What a write costs, counted and not timed. Each count has a ceiling in `ceilings.json`, which is only ever lowered.
describe.each(STORES)('a governed write, store %s', (store) => {
  let world: CostWorld;
  beforeAll(async () => {
    world = await startCostWorld(store);
  });
  afterAll(() => world.stop());

  it.each(DOORS)('door %s: costs no more than it may', async (door) => {
    if (wanted === 'list') {
      console.log(`\n## ${store}, ${door}\n${await listingOf(world, door)}`);
      return;
    }
    const costs = await costsOf(world, door);
    const compared = compare(store, door, costs);
    console.log(`\n## ${store}, ${door}\n${compared.map(({ line }) => line).join('\n')}`);
    // A probe that sees nothing would find everything cheap.
    expect(costs.main['ownCalls']).toBeGreaterThan(50);
    expect(costs.main['allocatedBytes']).toBeGreaterThan(5_000);
    for (const name of ['jsonTexts', 'hashes', 'ciphers', 'signatures'])
      expect((costs.main[name] ?? 0) + (costs.threads[name] ?? 0), name).toBeGreaterThan(0);
    if (wanted === 'lower') lower(store, door, costs);
    else expect(compared.filter(({ isAbove }) => isAbove).map(({ line }) => line)).toEqual([]);
  });
});
