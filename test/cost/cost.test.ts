import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compare, lower } from './ceilings.ts';
import { costsOf, lesser, listingOf } from './measure.ts';
import { type CostWorld, DOORS, startCostWorld, STORES } from './world.ts';

/** While something is above its ceiling, and before a ceiling is lowered: what else the machine does only adds. */
const TRIES = 4;

/** What `run.mjs` was asked for besides the comparison. */
const wanted = process.env['SVC_COST'];

// What a write costs, counted and not timed. Each count has a ceiling in `ceilings.json`, which is only ever lowered.
describe.each(STORES)('a governed write, store %s', (store) => {
  let world: CostWorld;
  beforeAll(async () => {
    world = await startCostWorld(store);
  });
  afterAll(() => world.stop());

  it.each(DOORS)('door %s: costs no more than it may', { timeout: 600_000 }, async (door) => {
    if (wanted === 'list') {
      console.log(`\n## ${store}, ${door}\n${await listingOf(world, door)}`);
      return;
    }
    let costs = await costsOf(world, door);
    let compared = compare(store, door, costs);
    for (let tries = 1; tries < TRIES && (wanted === 'lower' || compared.some(({ isAbove }) => isAbove)); tries += 1) {
      costs = lesser(costs, await costsOf(world, door));
      compared = compare(store, door, costs);
    }
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
