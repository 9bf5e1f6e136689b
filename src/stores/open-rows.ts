import type { Lease } from '../effects/model/effect.ts';
import type { StoreHealth } from '../effects/store.ts';
import type { RowStore } from './port.ts';

/** Effects that run on record although whoever ran them has ended. */
export interface Ended {
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
}
