import type { SqlDatabase } from './driver.ts';

/** What the file says about itself, as far as it is needed to open it. */
export interface FileMeta {
  readonly installId: string;
  readonly epoch: number;
  /** How often a gateway has opened the store. */
  readonly boots: number;
  /** The highest time that was given out; the clock begins there. */
  readonly clock: number;
  /** How many transactions were written. The mark beside the store remembers it, so that an older copy is noticed. */
  readonly commits: number;
}

export interface FileMetaTable {
  /** Like `find`, but throws if there is nothing. */
  get(): FileMeta;
  find(): FileMeta | null;
  create(installId: string, clock: number): void;
  /** A gateway starts to use the store. */
  boot(epoch: number): void;
}

/** What the engine needs of a session: the tables of one open database. `Told` is what listeners are told. */
export interface EngineSession<Told> {
  readonly meta: FileMetaTable;
  /** Sets the time of the transaction that begins. */
  beginAt(now: number): void;
  /** How many writes were made so far. It shows whether a failed step had already written something. */
  writes(): number;
  /** Writes what was collected in memory; called right before the commit. */
  flush(): void;
  /** What listeners are told once the transaction is durable; a second call returns nothing. */
  takeTold(): readonly Told[];
  /** Whether something waits to be written although nobody asks for it. */
  pending(): boolean;
  /** The transaction was rolled back, or another process wrote: nothing in memory is valid any more. */
  forget(): void;
}

/** A format of the store's file. */
export interface Format<Told, Session extends EngineSession<Told>, Reader> {
  /** Creates the tables if the file has none; throws for a file of another format. */
  ensureSchema(database: SqlDatabase): void;
  openSession(database: SqlDatabase): Session;
  /** The tables for people's reads, on a connection that cannot write. */
  openReader(database: SqlDatabase): Reader;
  /**
   * A gateway starts: what an earlier one left is from before `start`.
   * @param gone how much time has passed since, ms
   */
  recover(session: Session, start: number, gone: number): void;
}
