import { closeSync, fdatasync, fdatasyncSync, openSync } from 'node:fs';

/** A transaction that is committed, and whose answers wait for the disk. */
export interface Committed {
  /** It is durable. */
  answer(): void;
  /** Nobody can tell whether it is. */
  fail(error: unknown): void;
}

/** Syncs the journal of a database (its `-wal` file) behind the commits. */
export interface SyncBehind {
  /** Whether answers wait. */
  pending(): boolean;
  /** Takes a transaction right after its commit; its answers leave when it is durable. */
  add(transaction: Committed): void;
  /** Waits, in this thread, until all that was taken is durable, and answers it; fails it where it cannot be synced. */
  finish(): void;
  /** Lets go of the file; to be called after `finish`. */
  close(): void;
}

/**
 * With `synchronous = FULL` a commit waits for the disk with its thread. Here the thread goes on with the next
 * transaction meanwhile: commits write the journal only (`synchronous = NORMAL`), a sync of the file follows, and no
 * answer leaves before a sync that began after its commit has returned. One sync is under way at a time; it covers all
 * that was committed before it began. Checkpoints, which overwrite, sync by themselves in both settings
 * (https://www.sqlite.org/pragma.html#pragma_synchronous).
 * @param file the journal; exists from the first write of the connection to its close
 * @param answered after the answers of a sync
 * @param faulted a sync failed, and all that waited for it
 */
export function syncBehind(file: string, answered: () => void, faulted: (error: Error) => void): SyncBehind {
  const descriptor = openSync(file, 'r+');
  let waiting: Committed[] = [];
  let covered: Committed[] = [];
  let syncing = false;
  let closed = false;

  function take(): Committed[] {
    const all = [...covered, ...waiting];
    covered = [];
    waiting = [];
    return all;
  }

  function begin(): void {
    if (syncing || closed || waiting.length === 0) return;
    syncing = true;
    covered = waiting;
    waiting = [];
    fdatasync(descriptor, ended);
  }

  function ended(error: Error | null): void {
    syncing = false;
    if (closed) {
      closeSync(descriptor);
      return;
    }
    if (error !== null) {
      for (const transaction of take()) transaction.fail(error);
      faulted(error);
      return;
    }
    const durable = covered;
    covered = [];
    begin();
    for (const transaction of durable) transaction.answer();
    answered();
  }

  return {
    pending: () => covered.length > 0 || waiting.length > 0,
    add(transaction) {
      waiting.push(transaction);
      begin();
    },
    finish() {
      const all = take();
      if (all.length === 0) return;
      try {
        fdatasyncSync(descriptor);
      } catch (error) {
        for (const transaction of all) transaction.fail(error);
        return;
      }
      for (const transaction of all) transaction.answer();
    },
    close() {
      if (closed) return;
      closed = true;
      if (!syncing) closeSync(descriptor);
    },
  };
}
