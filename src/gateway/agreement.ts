import type { RedisStore } from './redis-store.ts';
import type { InForce } from './in-force.ts';

interface Remark {
  readonly part: string;
  readonly message: string;
}

/** Whether the gateways that share a store have the same files in force, for `/readyz`. */
export interface Agreement {
  /** Tells the others what is in force here. Call it once the policies have been activated. */
  announce(inForce: InForce): void;
  /** What keeps this gateway from taking calls. */
  impediments(): readonly Remark[];
  /** What somebody should look at. */
  notes(): readonly Remark[];
}

/** @param fleet `null` if the store has only one gateway */
export function createAgreement(
  fleet: Pick<RedisStore, 'announce' | 'announced'> | null,
  current: () => InForce,
): Agreement {
  return {
    announce({ policies, configuration }) {
      fleet?.announce({ policies: policies.version, configuration: configuration.sharedDigest });
    },
    impediments() {
      const inForce = fleet?.announced().policies ?? null;
      if (inForce === null || inForce === current().policies.version) return [];
      const message =
        'Other policies are in force in the store than this gateway has; calls are refused until its files say the same.';
      return [{ part: 'policies', message }];
    },
    notes() {
      const { policies, configuration } = current();
      return [...(fleet?.announced().others ?? [])].flatMap(([gateway, digests]) => [
        ...(digests.policies === policies.version
          ? []
          : [{ part: 'policies', message: `${gateway} has other policies than this gateway.` }]),
        ...(digests.configuration === configuration.sharedDigest
          ? []
          : [{ part: 'configuration', message: `${gateway} has another configuration than this gateway.` }]),
      ]);
    },
  };
}
