import type { Note } from '../effects/model/note.ts';
import type { RedisStore } from './redis-store.ts';
import type { InForce } from './in-force.ts';

/** Whether the gateways that share a store have the same files in force, for `/readyz`. */
export class Agreement {
  readonly #fleet;
  readonly #current;
  readonly #isOfTwo;

  /**
   * @param fleet `null` if the store has only one gateway
   * @param isOfTwo whether policies come in force only when a second person has confirmed them
   */
  constructor(fleet: Pick<RedisStore, 'announce' | 'others'> | null, current: () => InForce, isOfTwo = false) {
    this.#fleet = fleet;
    this.#current = current;
    this.#isOfTwo = isOfTwo;
  }

  /** Tells the others what is in force here. Call it once the policies have been activated. */
  announce({ policies, configuration }: InForce): void {
    this.#fleet?.announce({ policies: policies.version, configuration: configuration.sharedDigest });
  }

  /** What somebody should look at. */
  notes(): readonly Note[] {
    const { policies, configuration } = this.#current();
    const ofOthers = [...(this.#fleet?.others() ?? [])].flatMap(([gateway, digests]) => [
      ...(digests.policies === policies.version
        ? []
        : [{ part: 'policies', message: `${gateway} has other policies than this gateway.` }]),
      ...(digests.configuration === configuration.sharedDigest
        ? []
        : [{ part: 'configuration', message: `${gateway} has another configuration than this gateway.` }]),
    ]);
    return [...this.#notesOfFiles(this.#current()), ...ofOthers];
  }

  /** Files that are not in force stop nothing; somebody should know of them. */
  #notesOfFiles({ policies, own }: InForce): readonly Note[] {
    if (own.version === policies.version) return [];
    const files =
      own.version === null
        ? 'The policy files here cannot be used, and are not in force'
        : `The policy files here (version ${own.version}) are not in force`;
    const how = this.#isOfTwo
      ? 'Two people have to stand behind policies: svc policy proposals shows what waits for somebody, svc policy activate proposes the files here.'
      : 'svc policy history shows who put it in force, svc policy activate puts the files here in force.';
    const message = `${files}; version ${policies.version} is. ${how}`;
    return [{ part: 'policies', message }];
  }
}
