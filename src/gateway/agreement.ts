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
  /** What somebody should look at. */
  notes(): readonly Remark[];
}

/**
 * @param fleet `null` if the store has only one gateway
 * @param isOfTwo whether policies come in force only when a second person has confirmed them
 */
export function createAgreement(
  fleet: Pick<RedisStore, 'announce' | 'others'> | null,
  current: () => InForce,
  isOfTwo = false,
): Agreement {
  /** Files that are not in force stop nothing; somebody should know of them. */
  function notesOfFiles({ policies, own }: InForce): readonly Remark[] {
    if (own.version === policies.version) return [];
    const files =
      own.version === null
        ? 'The policy files here cannot be used, and are not in force'
        : `The policy files here (version ${own.version}) are not in force`;
    const how = isOfTwo
      ? 'Two people have to stand behind policies: svc policy proposals shows what waits for somebody, svc policy activate proposes the files here.'
      : 'svc policy history shows who put it in force, svc policy activate puts the files here in force.';
    const message = `${files}; version ${policies.version} is. ${how}`;
    return [{ part: 'policies', message }];
  }

  return {
    announce({ policies, configuration }) {
      fleet?.announce({ policies: policies.version, configuration: configuration.sharedDigest });
    },
    notes() {
      const { policies, configuration } = current();
      const ofOthers = [...(fleet?.others() ?? [])].flatMap(([gateway, digests]) => [
        ...(digests.policies === policies.version
          ? []
          : [{ part: 'policies', message: `${gateway} has other policies than this gateway.` }]),
        ...(digests.configuration === configuration.sharedDigest
          ? []
          : [{ part: 'configuration', message: `${gateway} has another configuration than this gateway.` }]),
      ]);
      return [...notesOfFiles(current()), ...ofOthers];
    },
  };
}
