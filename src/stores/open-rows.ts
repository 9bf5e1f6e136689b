import type { Lease } from '../effects/model/effect.ts';
import type { StoreHealth, StoreUnavailable } from '../effects/store.ts';
import type { RowStore } from './port.ts';

/** Effects that run on record although whoever ran them has ended. */
export interface Ended {
  /** What admissions carry as their owner, so that it can be told whether that has ended; `null`: their own will do. */
  readonly owner: string | null;
  /** Resolves when it is known of the workspace; where the store cannot say it now, too. */
  known(workspace: string): Promise<void>;
  /** Whether there may be any. */
  any(workspace: string): boolean;
  /** Until when something of the attempt may be under way, ms; `null` where its owner may live. */
  quietAt(workspace: string, lease: Lease): number | null;
  /** All of a workspace have been declared. */
  none(workspace: string): void;
}

/** An open store of rows, and what only the one who opened it knows. */
export interface OpenRows extends RowStore {
  /** Tells this store from all others, for as long as it lives. */
  readonly installId: string;
  /** As of now; does not wait. */
  health(): StoreHealth;
  readonly ended: Ended;
  /** Why no call may begin in a workspace at present, or `null`: what would have to be undone is not begun. */
  impediment(workspace: string): StoreUnavailable | null;
}
