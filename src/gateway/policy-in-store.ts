import { type Admission, type EffectStore, StoreUnavailable } from '../effects/store.ts';

/** If the files did not have the policy, they are read again no sooner than after this long, ms. */
const READ_AGAIN_MS = 1000;

/** The store, watched for the policy that it has in force, and a way to catch up with it. */
interface FollowedStore {
  readonly store: EffectStore;
  /**
   * Reads the files if another gateway has activated other policies.
   * @throws StoreUnavailable while the files here still say something else
   */
  readonly catchUp: () => Promise<void>;
}

/**
 * Follows the policy in force, which a stale admission names. The limits are in the store with it. So a gateway with
 * other files admits nothing until they agree.
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
