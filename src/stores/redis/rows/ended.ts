import type { Ended } from '../../open-rows.ts';

/** Boots of gateways that have ended, by workspace, as the store was last seen to have them. */
export interface EndedBoots extends Ended {
  /** @param count grows with each that ends */
  seen(workspace: string, count: string, boots: readonly string[]): void;
  /** The count that was seen last; `null` where none was. */
  count(workspace: string): string | null;
}

/**
 * A gateway that comes to a workspace says which boot of it that is; its earlier one has then ended. Admissions carry the boot as
 * their owner.
 * @param look brings what the store has of a workspace, where it has any
 */
export function createEndedBoots(boot: string, look: (workspace: string) => Promise<void>): EndedBoots {
  const known = new Map<
    string,
    { readonly count: string; readonly boots: ReadonlySet<string>; areDeclared: boolean }
  >();
  return {
    owner: boot,
    async known(workspace) {
      if (!known.has(workspace)) await look(workspace);
    },
    any(workspace) {
      const there = known.get(workspace);
      return there !== undefined && there.boots.size > 0 && !there.areDeclared;
    },
    quietAt: (workspace, { owner, quiesceUntil }) =>
      known.get(workspace)?.boots.has(owner) === true ? quiesceUntil : null,
    none(workspace) {
      const there = known.get(workspace);
      if (there !== undefined) there.areDeclared = true;
    },
    seen(workspace, count, boots) {
      // What a fail-over lost and came back may run on record again.
      known.set(workspace, { count, boots: new Set(boots), areDeclared: false });
    },
    count: (workspace) => known.get(workspace)?.count ?? null,
  };
}
