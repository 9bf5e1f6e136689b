import { type Admission, type EffectStore, StoreUnavailable } from '../effects/store.ts';

/** Files that did not have a policy are read again for it after this long at the earliest, ms. */
const READ_AGAIN_MS = 1000;

/** The store, listened to for the policy that it has in force, and the way to come up to it. */
interface FollowedStore {
  readonly store: EffectStore;
  /**
   * Reads the files where another gateway has put other policies in force.
   * @throws StoreUnavailable while the files here still say something else
   */
  readonly catchUp: () => Promise<void>;
}

/**
 * Follows the policy in force: a stale admission names it. Limits stand in the store with it, so a gateway whose files
 * differ admits nothing until they agree.
 * @param version of the policies that this gateway evaluates
 */
export function followPolicy(store: EffectStore, version: () => string, reload: () => Promise<void>): FollowedStore {
  let inForce: string | null = null;
  let reading: Promise<void> | null = null;
  let last: { readonly lookedFor: string; readonly at: number } | null = null;

  function heard(admission: Admission): Admission {
    if (admission.kind === 'stale') inForce = admission.versions.policy;
    return admission;
  }

  return {
    store: {
      ...store,
      get installId() {
        return store.installId;
      },
      admit: async (request) => heard(await store.admit(request)),
      preview: async (request) => heard(await store.preview(request)),
    },
    async catchUp() {
      if (inForce === null || inForce === version()) return;
      const isNews = last === null || last.lookedFor !== inForce || performance.now() - last.at >= READ_AGAIN_MS;
      if (reading === null && isNews) {
        last = { lookedFor: inForce, at: performance.now() };
        reading = reload().finally(() => {
          reading = null;
        });
      }
      await reading;
      if (inForce !== version())
        throw new StoreUnavailable('The policies in force in the store are not those of this gateway.');
    },
  };
}
