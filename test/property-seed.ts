import fc from 'fast-check';

/**
 * Properties are tried on the same random inputs in each run, so that a red run says something of the change it is of.
 * `SVC_TEST_SEED=random` looks further, `SVC_TEST_SEED=N` again.
 */
const wanted = process.env['SVC_TEST_SEED'];
if (wanted !== 'random') fc.configureGlobal({ seed: wanted === undefined ? 20_261_121 : Number(wanted) });
