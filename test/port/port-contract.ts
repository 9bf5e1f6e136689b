import { afterAll, beforeAll, describe, test } from 'vitest';
import { promisesOfBatches } from './batches-contract.ts';
import type { OpenPort, PortFixture, Timed } from './changes.ts';
import { promisesOfLedger } from './ledger-contract.ts';
import { promisesOfLists } from './lists-contract.ts';
import { promisesOfRandomChanges } from './random-changes.ts';
import { promisesOfRows } from './rows-contract.ts';
import { promisesOfSums } from './sums-contract.ts';

/**
 * All that the port promises (`src/stores/port.ts`), for one store. One store serves all tests.
 * @param noClock why the store does not run by the test's clock; `null`: it does
 */
export function describePort(name: string, open: OpenPort, noClock: string | null): void {
  const timed: Timed = (promise, check) => {
    if (noClock === null) test(promise, check);
  };
  const without = noClock === null ? '' : ` (but for what needs a clock of the test: ${noClock})`;
  describe(`the port of ${name}${without}`, () => {
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
    describe('rows', () => promisesOfRows(at, timed));
    describe('lists', () => promisesOfLists(at));
    describe('figures', () => promisesOfSums(at, timed));
    describe('the ledger', () => promisesOfLedger(at));
    describe('batches', () => promisesOfBatches(at));
    describe('all together', () => promisesOfRandomChanges(at, 10));
  });
}
