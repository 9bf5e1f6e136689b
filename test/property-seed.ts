import fc from 'fast-check';
import { DEEP } from './deep.ts';

/**
 * Properties are tried on the same random inputs in each run, so that a red run says something of the change it is of; with
 * `npm run test:deep` on many more. `SVC_TEST_SEED=random` looks further, `SVC_TEST_SEED=N` again.
 */
const numRuns = DEEP ? 10_000 : 200;
const wanted = process.env['SVC_TEST_SEED'];
fc.configureGlobal(
  wanted === 'random' ? { numRuns } : { numRuns, seed: wanted === undefined ? 20_261_121 : Number(wanted) },
);
