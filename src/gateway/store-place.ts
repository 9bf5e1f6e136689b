import type { EmbeddedStoreSettings } from '../config/configuration.ts';
import { stateFolder } from '../config/environment.ts';
import type { StorePlace } from '../stores/embedded/marks.ts';

/** Where the embedded store is, and its fence. One that somebody asked for has to work. */
export function placeOf({ path, fence }: EmbeddedStoreSettings): StorePlace {
  return {
    path,
    fence: fence === null ? { folder: stateFolder(), isRequired: false } : { folder: fence, isRequired: true },
  };
}
