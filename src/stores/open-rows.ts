import type { KeyObject } from 'node:crypto';
import type { Lease } from '../effects/model/effect.ts';
import type { StoreCommits, StoreHealth, StoreUnavailable } from '../effects/store.ts';
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
export type Program = (
  ended: Ended,
  keys: ReadonlyMap<string, KeyObject>,
) => (store: LocalStore, request: string) => string;

/** What people read of a store. */
export type ReadOperation = 'rows' | 'list' | 'ledger';

/** A program in the thread of a store that reads for people. Each of its looks is at one state of the store. */
export type ReadProgram = (rows: Pick<RowStore, ReadOperation>) => (request: string) => Promise<string>;

export type ProgramKeys = Map<string, KeyObject>;

/** A key that is no longer in use may still be asked for by what had begun with it: the newest ones are kept. */
const KEYS_KEPT = 2;

/** Adds the key that is in use from now on. */
export function keepKey(keys: ProgramKeys, name: string, key: KeyObject): void {
  keys.delete(name);
  keys.set(name, key);
  const [oldest] = keys.keys();
  if (keys.size > KEYS_KEPT && oldest !== undefined) keys.delete(oldest);
}

export interface OpenProgram {
  /** Asks a store's program: exactly one of `done` and `failed` is called, later. */
  readonly ask: (request: string, done: (answer: string) => void, failed: (error: Error) => void) => void;
  /** Gives it a key, before all that is asked from now on. */
  lend(name: string, key: KeyObject): void;
  readonly keys: ReadonlyMap<string, KeyObject>;
  /** How its steps were answered, where they may have to run again. */
  readonly commits?: () => StoreCommits;
}

/** The ledger's text for an operator's decision about a gateway. */
export type OperatorEvent = (kind: 'store.loss_accepted' | 'gateway.declared_lost', gateway: string) => string;

/** A program beside a store that several gateways share, in the same thread: its steps may have to run again. */
export interface FleetProgram {
  readonly operatorEvent: OperatorEvent;
  run(
    rows: OpenRows,
    keys: ReadonlyMap<string, KeyObject>,
    maxFreezeMs: number,
  ): { readonly ask: (request: string) => Promise<string>; commits(): StoreCommits; close(): Promise<void> };
}

/** An open store of rows, with what only its opener knows. */
export interface OpenRows extends RowStore {
  /** Absent where the store runs none. */
  readonly program?: OpenProgram;
  /** Asks the program in the thread that reads; absent where there is none. What it tells of is durable. */
  readonly readProgram?: (request: string) => Promise<string>;
  /** Identifies this store for as long as it exists. */
  readonly installId: string;
  /** As of now; does not wait. */
  health(): StoreHealth;
  readonly ended: Ended;
  /** Why no call may start in a workspace now, or `null`: a call that would have to be undone is not started. */
  impediment(workspace: string): StoreUnavailable | null;
}

/** A row that has left the store, as it was. */
export interface ArchivedRow {
  readonly id: string;
  readonly text: string;
}

export interface ArchiveMark {
  readonly n: number;
  readonly sha256: string;
}

/** Rows that left the store together. Each segment names the one before it. */
export interface Segment extends ArchiveMark {
  /** SHA-256 of the segment before it; `null`: it is the first of its workspace. */
  readonly before: string | null;
  readonly rows: readonly ArchivedRow[];
}

/** Segments outside the store. All methods reject with `StoreUnavailable` that says what is wrong. */
export interface SegmentStore {
  /** Writes a segment; once it is answered, it survives a power cut. */
  write(workspace: string, n: number, segment: Pick<Segment, 'before' | 'rows'>): Promise<ArchiveMark>;
  /** `null`: there is no such segment. */
  read(workspace: string, n: number): Promise<Segment | null>;
  hasAfter(workspace: string, n: number): Promise<boolean>;
  /** How far a store was seen here; `null`: none was. */
  mark(workspace: string): Promise<ArchiveMark | null>;
  setMark(workspace: string, mark: ArchiveMark): Promise<void>;
  /** Where a segment is, for people. */
  at(workspace: string, n: number): string;
  /** Where the mark is, for people. */
  markAt(workspace: string): string;
}
