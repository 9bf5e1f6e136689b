import type { Lease } from '../effects/model/effect.ts';
import type { StoreHealth, StoreUnavailable } from '../effects/store.ts';
import type { LocalStore, RowStore } from './port.ts';

/** Effects that are still recorded as running although their gateway has ended. */
export interface Ended {
  /**
   * What leases carry as their owner, so that others can tell whether it has ended; `null`: what admissions carry anyway
   * is enough.
   */
  readonly owner: string | null;
  /** Resolves when it is known for the workspace, and also if the store cannot say it now. */
  known(workspace: string): Promise<void>;
  /** Whether there may be any. */
  any(workspace: string): boolean;
  /** Until when something of the attempt may still be running, ms; `null` if its owner may be alive. */
  quietAt(workspace: string, lease: Lease): number | null;
  /** All such effects of a workspace have been declared. */
  none(workspace: string): void;
}

/**
 * A program that runs where the file of a store is, each request in a transaction of its own that also has those of
 * others. The store hands texts through. Everything that an answer tells of is durable when it is answered.
 */
export type Program = (ended: Ended) => (store: LocalStore, request: string) => string;

/** Asks a store's program: exactly one of `done` and `failed` is called, later. */
export type AskProgram = (request: string, done: (answer: string) => void, failed: (error: Error) => void) => void;

/** An open store of rows, with what only its opener knows. */
export interface OpenRows extends RowStore {
  /** Asks the store's program. Absent where the store runs none. */
  readonly program?: AskProgram;
  /** Identifies this store for as long as it exists. */
  readonly installId: string;
  /** As of now; does not wait. */
  health(): StoreHealth;
  readonly ended: Ended;
  /** Why no call may start in a workspace now, or `null`: a call that would have to be undone is not started. */
  impediment(workspace: string): StoreUnavailable | null;
}
