import type { Lease } from '../../../effects/model/effect.ts';
import type { Ended } from '../../open-rows.ts';

/** When a gateway began with the store's file. */
export interface Boot {
  /** What was admitted before belongs to an earlier boot, ms. */
  readonly at: number;
  /**
   * What the clock says has gone by since the store was last written, ms. Somebody may have set it: this time does not
   * count for what was under way.
   */
  readonly unwatchedMs: number;
}

/** One gateway at a time: what was admitted before this boot has no owner any more. */
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
      // Its owner sent nothing after this boot; of a restart before it, which left it undeclared, nothing is known here.
      return Math.max(quiesceUntil + unwatchedMs, at + unwatchedMs + quiesceUntil - leaseEnd);
    },
    none(workspace) {
      current();
      declared.add(workspace);
    },
  };
}
