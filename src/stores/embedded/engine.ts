import { join } from 'node:path';
import { type StoreHealth, StoreUnavailable } from '../../effects/store.ts';
import { type Committed, createSyncQueue, type SyncQueue } from './sync-queue.ts';
import { type Booted, bootStore } from './boot.ts';
import { machineAhead, type StoreClock, trustedClock } from './clock.ts';
import {
  loadDriver,
  type OpenDatabase,
  isConstraintFailure,
  isSyncFailure,
  type SqlDatabase,
  type SqlStatement,
  storageFailure,
} from './driver.ts';
import { asError, describe, isFull } from './failure-text.ts';
import { makePrivateFolder, syncPath } from '../private-folder.ts';
import type { Program, ProgramKeys } from '../open-rows.ts';
import { type Boot, endedBefore } from './ended.ts';
import { type StorePlace, writeMarks } from './marks.ts';
import { acquireLock, type StoreLock } from './lock.ts';
import { JOURNAL } from './rewrite.ts';
import type { News } from '../threads/channel.ts';
import type { Handlers, Writing } from '../threads/operations.ts';
import type { RowSession } from './tables/session.ts';

/** The most operations in one transaction. It limits how long an answer waits for others. */
const MAX_BATCH = 512;

/** How often the store looks for writes of other processes, ms. */
const WATCH_MS = 250;

/** How often the mark beside the store is renewed, counted in watches. */
const WATCHES_PER_MARK = 20;

/** The first and the longest wait before a store that failed to open is tried again, ms. */
const REOPEN_FIRST_MS = 100;
const REOPEN_MOST_MS = 5000;

/** How often a clock that is not trusted is checked, ms. */
const CLOCK_CHECK_MS = 500;

/** With this many pages in the journal, they are moved into the file of the store. */
const CHECKPOINT_PAGES = 4000;

/** A request, and where its answer goes. */
interface Job {
  /** Runs it in a transaction. @returns what hands over its answer, once that is durable */
  attempt(session: RowSession): () => void;
  failed(error: Error): void;
}

export interface EngineOptions extends StorePlace {
  readonly lockWaitMs: number;
  /** Replaces the machine's clock, for tests. */
  readonly clock: (() => number) | null;
  /** How far the machine's clock may be ahead of the known time, ms. */
  readonly maxClockJumpMs: number;
  /** It runs in a thread of its own, which may wait for the disk. */
  readonly isOwnThread: boolean;
  readonly program: Program | null;
  readonly keys: ProgramKeys;
}

export interface Engine {
  readonly installId: string;
  now(): number;
  /** An answer is handed over once everything that it tells of is durable. */
  readonly handlers: Handlers<Writing>;
  /** Resolves with whether its file is closed. One that could not be synced stays open until the process ends. */
  close(): Promise<boolean>;
}

interface OpenState {
  readonly kind: 'open';
  readonly database: SqlDatabase;
  readonly session: RowSession;
  /** Transactions that are lost: marks carry them. */
  readonly lost: number;
  readonly clock: StoreClock;
  readonly dataVersion: SqlStatement;
  readonly journal: SyncQueue;
  readonly checkpoint: SqlStatement;
  seenVersion: unknown;
  /** Number of commits: taken (waiting for the disk or durable), durable, and recorded in the mark. */
  takenCommits: number;
  durableCommits: number;
  markedCommits: number;
}

type Shut = { readonly kind: 'failed'; readonly why: string } | { readonly kind: 'closed' };

/**
 * Connections whose journal may not be on the disk. They stay open until the process ends: closing one copies from its
 * journal into the store's file, and a later read of the journal may give other content than was written.
 */
const unsynced: SqlDatabase[] = [];

/** A request failed after it had written something, so the transaction cannot be kept. `cause`: why it failed. */
class TornStep extends Error {}

/**
 * Opens the store and answers requests with group commit. All requests of a turn of the event loop, and all that arrive
 * while a commit runs, share one transaction. All transactions that are committed while the disk works share its next
 * sync. Rejects with {@link StoreUnavailable} when the store cannot be opened.
 */
export async function startEngine(options: EngineOptions, notify: (news: News) => void): Promise<Engine> {
  const { path } = options;
  const open = await loadDriver();
  const lock = await lockFolder(path, open, options.lockWaitMs);
  try {
    // A file that is opened anew has to know the watched kinds as well.
    const watched = new Set<string>();
    const clock = options.clock === null ? null : trustedClock(options.clock);
    const first = bootStore(options, open, watched, clock, options.maxClockJumpMs);
    return runEngine(options, notify, open, lock, watched, first);
  } catch (error) {
    lock.release();
    throw new StoreUnavailable(describe(path, error));
  }
}

/** Keeps other gateways out of a folder. @throws StoreUnavailable */
async function lockFolder(path: string, open: OpenDatabase, waitMs: number): Promise<StoreLock> {
  try {
    makePrivateFolder(path);
    return await acquireLock(path, open, waitMs);
  } catch (error) {
    throw error instanceof StoreUnavailable ? error : new StoreUnavailable(describe(path, error));
  }
}

function runEngine(
  options: EngineOptions,
  notify: (news: News) => void,
  open: OpenDatabase,
  lock: StoreLock,
  watched: Set<string>,
  first: Booted,
): Engine {
  const { path, maxClockJumpMs, isOwnThread } = options;
  let clock: StoreClock | null = null;
  let boot: Boot = { at: 0, unwatchedMs: 0 };
  const run =
    options.program?.(
      endedBefore(() => boot),
      options.keys,
    ) ?? null;
  const installId = first.kind === 'open' ? first.mark.installId : first.installId;
  let health: StoreHealth = { ready: true, problem: null, durability: 'fsync', epoch: 0 };
  let queue: Job[] = [];
  let scheduled = false;
  let watches = 0;
  let openTimer: NodeJS.Timeout | null = null;
  let isUnsynced = false;
  /** A file that is being closed. */
  let ending = Promise.resolve();
  let state: OpenState | Shut = enter(first);
  let lastNow = state.kind === 'open' ? state.clock.now() : Date.now();
  const watcher = setInterval(watch, WATCH_MS).unref();

  function enter(booted: Booted): OpenState | Shut {
    if (booted.kind !== 'open') {
      notifyHealth({ code: booted.kind, message: booted.message });
      if (booted.kind === 'clock_ahead') openAfter(CLOCK_CHECK_MS);
      return { kind: 'failed', why: booted.message };
    }
    const { database, session } = booted;
    ({ clock, boot } = booted);
    notify({ kind: 'boot', boot });
    health = { ...health, epoch: session.meta.get().epoch };
    warn(booted.warning);
    notifyHealth(null);
    const dataVersion = database.prepare('PRAGMA data_version');
    const seenVersion = dataVersion.get()?.['data_version'];
    const { commits } = session.meta.get();
    const journal = followJournal(database);
    const checkpoint = database.prepare('PRAGMA wal_checkpoint(PASSIVE)');
    const marks = { takenCommits: commits, durableCommits: commits, markedCommits: commits };
    return {
      kind: 'open',
      database,
      session,
      lost: booted.mark.lost,
      clock: booted.clock,
      dataVersion,
      journal,
      checkpoint,
      seenVersion,
      ...marks,
    };
  }

  /** From now on answers wait for the disk, but commits do not. */
  function followJournal(database: SqlDatabase): SyncQueue {
    try {
      const pageBytes = Number(database.prepare('PRAGMA page_size').get()?.['page_size']);
      const journal = createSyncQueue(join(path, JOURNAL), pageBytes, isOwnThread, (error) => giveUp(database, error));
      // The first write created the journal: its name must be durable too.
      syncPath(path);
      database.prepare('PRAGMA synchronous = NORMAL').all();
      // By itself, SQLite reports to nobody when a checkpoint cannot be synced.
      database.prepare('PRAGMA wal_autocheckpoint = 0').all();
      return journal;
    } catch (error) {
      database.close();
      throw error;
    }
  }

  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    setImmediate(commitQueue);
  }

  function commitQueue(): void {
    scheduled = false;
    const jobs = queue.slice(0, MAX_BATCH);
    queue = queue.slice(MAX_BATCH);
    if (queue.length > 0) schedule();
    take(jobs);
  }

  function take(jobs: readonly Job[]): void {
    if (state.kind === 'open') commit(state, jobs);
    else for (const { failed } of jobs) failed(new StoreUnavailable(whyShut(state)));
  }

  function perform<T>(
    work: (session: RowSession) => T,
    done: (answer: T) => void,
    failed: (error: Error) => void,
  ): void {
    const attempt: Job['attempt'] = (session) => {
      const answer = work(session);
      return () => done(answer);
    };
    queue.push({ attempt, failed });
    schedule();
  }

  function commit(store: OpenState, jobs: readonly Job[]): void {
    let replies: readonly ((() => void) | Error)[] = [];
    let commits = store.takenCommits;
    const { session } = store;
    try {
      session.transact(
        () => {
          notice(store);
          lastNow = store.clock.now();
          return lastNow;
        },
        () => {
          replies = jobs.map((job) => attempt(session, job));
        },
      );
      ({ commits } = session.meta.get());
    } catch (error) {
      const isFault = error instanceof TornStep || isConstraintFailure(error);
      if (isFault && jobs.length > 1) {
        // Each gets its own transaction, so that only the faulty one fails.
        for (const job of jobs) take([job]);
        return;
      }
      if (!isFault) {
        breakDown(store, jobs, error);
        return;
      }
      replies = [asError(error instanceof TornStep ? error.cause : error)];
    }
    answerWhenDurable(store, commits, jobs, replies);
    try {
      // After a sync that failed nothing is brought into the file.
      if (!isUnsynced && store.journal.hasFrames(CHECKPOINT_PAGES)) store.checkpoint.all();
    } catch (error) {
      breakDown(store, [], error);
    }
  }

  /** A request that changed nothing waits as well: it may have read what is not durable yet. */
  function answerWhenDurable(
    store: OpenState,
    commits: number,
    jobs: readonly Job[],
    replies: readonly ((() => void) | Error)[],
  ): void {
    const { session, journal } = store;
    const changed = session.takeChanged();
    const answer = (instead: Error | null): void => {
      for (const [index, { failed }] of jobs.entries()) {
        const reply = replies[index];
        if (reply instanceof Error) failed(reply);
        else if (instead !== null) failed(instead);
        else reply?.();
      }
    };
    const transaction: Committed = {
      answer() {
        store.durableCommits = commits;
        if (changed.length > 0) notify({ kind: 'changed', changed });
        answer(null);
      },
      fail: (error) => answer(new StoreUnavailable(describe(path, error))),
    };
    const hasWritten = commits !== store.takenCommits;
    store.takenCommits = commits;
    if (hasWritten) journal.add(transaction);
    else journal.join(transaction);
  }

  /** A request that fails before it writes fails alone. */
  function attempt(session: RowSession, job: Job): (() => void) | Error {
    const before = session.writes();
    try {
      return job.attempt(session);
    } catch (error) {
      if (storageFailure(error) !== null) throw error;
      if (session.writes() !== before) throw new TornStep('', { cause: error });
      return asError(error);
    }
  }

  /** Another process (`svc keys create`) wrote: nothing in memory is valid any more, and there may be new keys. */
  function notice(store: OpenState): void {
    const version = store.dataVersion.get()?.['data_version'];
    if (version === store.seenVersion) return;
    store.seenVersion = version;
    store.session.forget();
    // An operator may have accepted a later time.
    store.clock.accept(store.session.meta.get().clock);
    notify({ kind: 'changed', changed: null });
  }

  /** Nothing may be assumed about running transactions: the file is closed and reopened as after a crash. */
  function breakDown(store: OpenState, jobs: readonly Job[], error: unknown): void {
    const why = describe(path, error);
    if (isSyncFailure(error)) {
      store.journal.distrust(asError(error));
      giveUp(store.database, error);
    } else fail(why, error);
    for (const job of jobs) job.failed(new StoreUnavailable(why));
    ending = letGo(store, () => {}).then(() => {
      if (!isUnsynced && state.kind === 'failed') openAfter(REOPEN_FIRST_MS);
    });
  }

  /**
   * Closes the file. What is committed stays committed. Its own sync decides the answers.
   * @param last what is still to be done with it
   */
  async function letGo({ database, journal }: OpenState, last: () => void): Promise<void> {
    await journal.finish();
    if (isUnsynced) return;
    journal.close();
    try {
      last();
    } catch {
      // The disk may be full. What was acknowledged is in the journal, and the next start reads it from there.
    }
    try {
      database.close();
    } catch {
      // The connection is given up in any case.
    }
  }

  /**
   * The disk could not sync. What was committed since the last sync may be there completely, partly or not at all, and
   * this process cannot find out from the system. So it stops using the store. The next process reads what is there,
   * writes all of it again, and syncs it before it admits anything.
   */
  function giveUp(database: SqlDatabase, error: unknown): void {
    if (isUnsynced) return;
    isUnsynced = true;
    unsynced.push(database);
    const why = `${describe(path, error)} It could not be synced, so nobody can tell what is on the disk: this process admits nothing more and has to end. The next start writes the journal of the store anew.`;
    if (state.kind !== 'closed') state = { kind: 'failed', why };
    notifyHealth({ code: 'store_sync_failed', message: why });
  }

  function warn(warning: string | null): void {
    const { warning: _, ...of } = health;
    health = warning === null ? of : { ...of, warning };
  }

  function notifyHealth(problem: StoreHealth['problem']): void {
    health = { ...health, ready: problem === null, problem };
    notify({ kind: 'health', health });
  }

  function fail(why: string, error: unknown): void {
    state = { kind: 'failed', why };
    notifyHealth({ code: isFull(error) ? 'store_full' : 'store_unavailable', message: why });
  }

  function openAfter(waitMs: number): void {
    openTimer = setTimeout(() => {
      try {
        state = enter(bootStore(options, open, watched, clock, maxClockJumpMs));
        if (state.kind === 'open') notify({ kind: 'changed', changed: null });
      } catch (error) {
        fail(describe(path, error), error);
        openAfter(Math.min(waitMs * 2, REOPEN_MOST_MS));
      }
    }, waitMs).unref();
  }

  /** While the machine's clock is not trusted, the store continues with its own time and admits nothing. */
  function watchClock(store: OpenState): void {
    const now = store.clock.now();
    const ahead = store.clock.ahead();
    const isAhead = ahead > 0;
    if (isAhead === (health.problem?.code === 'clock_ahead')) return;
    const message = machineAhead(now, now + ahead, maxClockJumpMs);
    notifyHealth(isAhead ? { code: 'clock_ahead', message } : null);
  }

  function watch(): void {
    if (state.kind !== 'open') return;
    try {
      if (!scheduled) notice(state);
      watchClock(state);
      watches += 1;
      if (watches % WATCHES_PER_MARK === 0) mark(state);
    } catch (error) {
      breakDown(state, [], error);
    }
  }

  function mark(store: OpenState): void {
    const { durableCommits: commits } = store;
    if (commits === store.markedCommits) return;
    const before = health.warning;
    warn(writeMarks(options, { installId, epoch: health.epoch, commits, lost: store.lost, seen: store.clock.seen() }));
    if (health.warning !== before) notifyHealth(health.problem);
    store.markedCommits = commits;
  }

  return {
    installId,
    now() {
      if (state.kind === 'open') lastNow = state.clock.now();
      return lastNow;
    },
    handlers: {
      commit: (change, ...to) => perform((session) => session.commit(change), ...to),
      read: ({ workspace, wants, sums }, ...to) => perform((session) => session.read(workspace, wants, sums), ...to),
      sums: ({ workspace, after, limit }, ...to) => perform((session) => session.sums(workspace, after, limit), ...to),
      prune: ({ workspace, limit }, ...to) => perform((session) => session.prune(workspace, limit), ...to),
      program(request, done, failed) {
        if (run === null) failed(new TypeError('this store runs no program'));
        else perform((session) => run(session, request), done, failed);
      },
      watch(kinds, done) {
        for (const kind of kinds) watched.add(kind);
        done(null);
      },
      settled(_, done, failed) {
        if (state.kind !== 'open') {
          failed(new StoreUnavailable(whyShut(state)));
          return;
        }
        state.journal.join({
          answer: () => done(null),
          fail: (error) => failed(new StoreUnavailable(describe(path, error))),
        });
      },
    },
    async close() {
      if (state.kind === 'closed') return !isUnsynced;
      while (queue.length > 0) commitQueue();
      clearInterval(watcher);
      if (openTimer !== null) clearTimeout(openTimer);
      const last = state;
      state = { kind: 'closed' };
      await ending;
      if (last.kind === 'open') {
        await letGo(last, () => {
          mark(last);
          // Moves everything into one file, so that a copy of store.db is complete as soon as the driver has closed it.
          last.database.prepare('PRAGMA wal_checkpoint(TRUNCATE)').all();
        });
      }
      // A new process would continue with what this process has of the file in memory. So the lock is released only
      // when this process ends.
      if (!isUnsynced) lock.release();
      return !isUnsynced;
    },
  };
}

function whyShut(at: Shut): string {
  return at.kind === 'failed' ? at.why : 'The store is closed.';
}
