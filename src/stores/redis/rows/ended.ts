import type { Ended } from '../../open-rows.ts';

/** For each workspace, the boots of gateways that have ended, as the store last said. */
export interface EndedBoots extends Ended {
  /** @param count grows with each boot that ends */
  seen(workspace: string, count: string, boots: readonly string[]): void;
  /** The count that was seen last; `null` if none was. */
  count(workspace: string): string | null;
}

/**
 * When a gateway joins a workspace, it names its boot; its earlier boot has then ended. Admissions carry the boot as
 * their owner.
 * @param boot `null`: no steps run here
 * @param load reads what the store has of a workspace, if anything
 */
export function createEndedBoots(boot: string | null, load: (workspace: string) => Promise<void>): EndedBoots {
  const known = new Map<
    string,
    { readonly count: string; readonly boots: ReadonlySet<string>; areDeclared: boolean }
  >();
  return {
    owner: boot,
    async known(workspace) {
      if (!known.has(workspace)) await load(workspace);
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
      // After a fail-over, effects that were lost and came back may again be recorded as running.
      known.set(workspace, { count, boots: new Set(boots), areDeclared: false });
    },
    count: (workspace) => known.get(workspace)?.count ?? null,
  };
}
