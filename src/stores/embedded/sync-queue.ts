import { closeSync, fdatasync, fdatasyncSync, openSync, readSync } from 'node:fs';

/** A committed transaction whose answers wait for the disk. */
export interface Committed {
  /** It is durable. */
  answer(): void;
  /** Nobody can tell whether it is durable. */
  fail(error: unknown): void;
}

/** Syncs the journal of a database (its `-wal` file) after the commits. */
export type SyncQueue = ReturnType<typeof createSyncQueue>;

/** A sync that is short, ms. */
const SHORT_MS = 1;

/**
 * After a sync that was not short, so many commits are not waited for. Then the disk is tried again: on a busy
 * machine to wake the threads takes longer than that, and a sync beside this thread tells little of the disk.
 */
const NOT_WAITED_FOR = 16;

/**
 * With `synchronous = FULL`, a commit blocks its thread until the disk is done. Here a commit only writes the journal
 * (`synchronous = NORMAL`). A sync of the file follows, and no answer is sent before a sync that began after its commit
 * has returned. Only one sync runs at a time. It covers everything that was committed before it began. Checkpoints, which
 * overwrite, sync by themselves in both settings (https://www.sqlite.org/pragma.html#pragma_synchronous).
 *
 * To wake the thread that syncs, and be woken by it, takes longer than a sync of a fast disk. So after a short one this
 * thread waits itself; otherwise it goes on with the next transaction.
 *
 * After a failed sync there is no other. The kernel reports an error once for each descriptor, and then treats what it
 * could not write as written. A second sync would succeed and prove nothing.
 * @param file the journal; exists from the first write of the connection to its close
 * @param pageBytes size of the database's pages
 * @param mayWait whether this thread may wait for the disk; the gateway's own may not
 * @param faulted called when a sync failed, and with it everything that waited for it; nothing more is taken
 */
export function createSyncQueue(file: string, pageBytes: number, mayWait: boolean, faulted: (error: Error) => void) {
  const descriptor = openSync(file, 'r+');
  let begunAt = 0;
  let lastMs = Infinity;
  let notWaitedFor = 0;
  let waiting: Committed[] = [];
  let covered: Committed[] = [];
  let syncing = false;
  let failure: Error | null = null;
  let whenIdle: (() => void)[] = [];

  function isWorthWaiting(): boolean {
    const isWorth = mayWait && (lastMs < SHORT_MS || notWaitedFor === NOT_WAITED_FOR);
    notWaitedFor = isWorth ? 0 : notWaitedFor + 1;
    return isWorth;
  }

  /** @param here whether this thread waits for it */
  function begin(here = false): void {
    if (waiting.length === 0) {
      const finished = whenIdle;
      whenIdle = [];
      for (const done of finished) done();
      return;
    }
    syncing = true;
    covered = waiting;
    waiting = [];
    begunAt = performance.now();
    if (!here) {
      fdatasync(descriptor, ended);
      return;
    }
    let failed: Error | null = null;
    try {
      fdatasyncSync(descriptor);
    } catch (error) {
      failed = error instanceof Error ? error : new Error(String(error));
    }
    ended(failed);
  }

  function ended(error: Error | null): void {
    syncing = false;
    lastMs = performance.now() - begunAt;
    const taken = covered;
    covered = [];
    if (error !== null) {
      fail(error, taken);
      faulted(error);
      begin();
      return;
    }
    const here = waiting.length > 0 && isWorthWaiting();
    if (!here) begin();
    for (const transaction of taken) transaction.answer();
    if (here && !syncing) begin(true);
  }

  function fail(error: Error, taken: readonly Committed[]): void {
    failure = error;
    const all = [...taken, ...waiting];
    waiting = [];
    for (const transaction of all) transaction.fail(error);
  }

  return {
    /** Takes a transaction right after its commit. Its answers are sent when it is durable. */
    add(transaction: Committed): void {
      if (failure !== null) {
        transaction.fail(failure);
        return;
      }
      waiting.push(transaction);
      if (!syncing) begin(isWorthWaiting());
    },
    /**
     * Takes a transaction that changed nothing. It waits for the commits that it may have seen, but needs no sync itself.
     */
    join(transaction: Committed): void {
      const others = waiting.length > 0 ? waiting : syncing ? covered : null;
      if (failure !== null) transaction.fail(failure);
      else if (others === null) transaction.answer();
      else others.push(transaction);
    },
    /**
     * Another sync of the file, on its own descriptor, failed. Nothing that waits here is known to be on the disk, and
     * what the running sync reports later proves nothing.
     */
    distrust(error: Error): void {
      if (failure !== null) return;
      const taken = covered;
      covered = [];
      fail(error, taken);
    },
    /** Resolves when all that was taken is durable and answered, or a sync has failed. Waits for a running sync. */
    finish: (): Promise<void> =>
      new Promise((resolve) => {
        whenIdle.push(resolve);
        if (!syncing) begin();
      }),
    /** Whether the journal has at least this many frames that no checkpoint has freed yet. */
    hasFrames: (count: number): boolean => isFrameInUse(descriptor, count, pageBytes),
    /** Closes the file; call it after `finish`. */
    close: (): void => closeSync(descriptor),
  };
}

/** Size of a journal's header, and of a frame before its page (https://www.sqlite.org/fileformat2.html#walformat). */
export const HEADER_BYTES = 32;
export const FRAME_HEADER_BYTES = 24;
/** The two random numbers of a round of the journal, and where its header has them. */
export const SALT_BYTES = 8;
export const SALTS_AT = 16;

/** A frame belongs to the current round of the journal if it has the two random numbers of the journal's header. */
export function isFrameInUse(descriptor: number, count: number, pageBytes: number): boolean {
  const salts = Buffer.alloc(2 * SALT_BYTES);
  const frame = HEADER_BYTES + (count - 1) * (FRAME_HEADER_BYTES + pageBytes);
  const read =
    readSync(descriptor, salts, 0, SALT_BYTES, SALTS_AT) +
    readSync(descriptor, salts, SALT_BYTES, SALT_BYTES, frame + 8);
  return read === salts.length && salts.compare(salts, 0, SALT_BYTES, SALT_BYTES) === 0;
}
