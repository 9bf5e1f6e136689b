import { afterAll } from 'vitest';
import { compileStore } from '../stores/compiled.ts';
import { embeddedIn } from '../contract/embedded-store.ts';
import { describeStoreContract } from '../contract/store-contract.ts';

const compiled = compileStore();
afterAll(compiled.remove);

describeStoreContract('the embedded store in a thread', embeddedIn(await compiled.openEmbeddedStore(), 'auto'), {
  noClock: 'the thread runs by the machine’s clock',
});
