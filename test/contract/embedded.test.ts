import { openEmbeddedStore } from '../../src/stores/embedded/open.ts';
import { embeddedIn } from './embedded-store.ts';
import { describeStoreContract } from './store-contract.ts';

describeStoreContract('the embedded store', embeddedIn(openEmbeddedStore, 'never'), {
  noClock: null,
});
