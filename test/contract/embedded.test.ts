import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { embeddedIn } from './embedded-store.ts';
import { describeStoreContract } from './store-contract.ts';

describeStoreContract('the embedded store', embeddedIn(openEmbeddedStore, 'never'), {
  noClock: null,
});
