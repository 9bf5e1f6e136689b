/** Whether this is `npm run test:deep`: what takes long is done in full, and on many more inputs. */
export const DEEP = process.env['SVC_TEST_DEEP'] === '1';
