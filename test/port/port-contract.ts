import { afterAll, beforeAll, describe } from 'vitest';
import { promisesOfBatches } from './batches-contract.ts';
import type { OpenPort, PortFixture } from './changes.ts';
import { promisesOfLedger } from './ledger-contract.ts';
import { promisesOfLists } from './lists-contract.ts';
import { promisesOfRandomChanges } from './random-changes.ts';
import { promisesOfRows } from './rows-contract.ts';
import { promisesOfSums } from './sums-contract.ts';

/** All that the port promises (`src/stores/port.ts`), for one store. One store serves all tests. */
export function describePort(name: string, open: OpenPort): void {
  describe(`the port of ${name}`, () => {
    let fixture: PortFixture | null = null;
    const at = (): PortFixture => {
      if (fixture === null) throw new Error('the store is not open');
      return fixture;
    };
    beforeAll(async () => {
      fixture = await open();
    });
    afterAll(async () => {
      await fixture?.close();
    });
    describe('rows', () => promisesOfRows(at));
    describe('lists', () => promisesOfLists(at));
    describe('figures', () => promisesOfSums(at));
    describe('the ledger', () => promisesOfLedger(at));
    describe('batches', () => promisesOfBatches(at));
    describe('all together', () => promisesOfRandomChanges(at, 10));
  });
}
