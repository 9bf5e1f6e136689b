import type { Lease } from '../../effects/model/effect.ts';
import type { Ended } from '../open-rows.ts';

/** When a gateway started to use the store's file. */
export interface Boot {
  /** What was admitted before this belongs to an earlier boot, ms. */
  readonly at: number;
  /**
   * How much time has passed since the store was last written, by the clock, ms. Somebody may have set the clock, so
   * this time does not count for what was running.
   */
  readonly unwatchedMs: number;
}

/** There is only one gateway at a time, so what was admitted before this boot has no owner any more. */
export function endedBefore(boot: () => Boot): Ended {
  let of = boot();
  let declared = new Set<string>();
  function current(): Boot {
    if (of !== boot()) {
      of = boot();
      declared = new Set();
    }
    return of;
  }
  return {
    owner: null,
    known: () => Promise.resolve(),
    any(workspace) {
      current();
      return !declared.has(workspace);
    },
    quietAt(_, { admittedAt, leaseEnd, quiesceUntil }: Lease) {
      const { at, unwatchedMs } = current();
      if (admittedAt >= at) return null;
      // Its owner sent nothing after this boot. There may have been another restart before this one that did not
      // declare it; nothing is known about that here.
      return Math.max(quiesceUntil + unwatchedMs, at + unwatchedMs + quiesceUntil - leaseEnd);
    },
    none(workspace) {
      current();
      declared.add(workspace);
    },
  };
}
