import type { SqlDatabase } from './driver.ts';

/** What the file says of itself, as far as opening it needs to know. */
export interface FileMeta {
  readonly installId: string;
  readonly epoch: number;
  /** How often a gateway has opened the store. */
  readonly boots: number;
  /** The highest time that was told; the clock begins there. */
  readonly clock: number;
  /** Transactions written; the file beside the store remembers it, so that an older copy is noticed. */
  readonly commits: number;
}

export interface FileMetaTable {
  /** Throws where `find` would find nothing. */
  get(): FileMeta;
  find(): FileMeta | null;
  create(installId: string, clock: number): void;
  /** A gateway begins to use the store. */
  boot(epoch: number): void;
}

/** What the engine asks of a session: the tables of one open database. `Told` is what others are to hear of. */
export interface EngineSession<Told> {
  readonly meta: FileMetaTable;
  /** Sets the time of the transaction that begins. */
  beginAt(now: number): void;
  /** How many writes were made; grows. Lets the caller tell a step that failed before it wrote from one that tore. */
  writes(): number;
  /** Writes what was gathered in memory; right before the commit. */
  flush(): void;
  /** What others are to hear of the transaction once it is durable; forgets it. */
  takeTold(): readonly Told[];
  /** Something waits to be written, though nobody asks for it. */
  pending(): boolean;
  /** The transaction was rolled back, or another process wrote: nothing in memory holds. */
  forget(): void;
}

/** A format of the store's file. */
export interface Format<Told, Session extends EngineSession<Told>, Reader> {
  /** Makes the tables where the file has none; throws for a file of another format. */
  ensureSchema(database: SqlDatabase): void;
  openSession(database: SqlDatabase): Session;
  /** Tables as people look at them, on a connection that cannot write. */
  openReader(database: SqlDatabase): Reader;
  /**
   * A gateway begins: what an earlier one left is from before `start`.
   * @param gone how much time has gone by since, ms
   */
  recover(session: Session, start: number, gone: number): void;
}
