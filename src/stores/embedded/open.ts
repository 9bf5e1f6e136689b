import { availableParallelism } from 'node:os';
import { StoreUnavailable, type StoreHealth } from '../../effects/store.ts';
import { keepKey, type OpenProgram, type OpenRows, type Program, type ProgramKeys } from '../open-rows.ts';
import type { SumListed, Watched } from '../port.ts';
import { MAX_CLOCK_JUMP_MS } from '../clock-jump.ts';
import { endedBefore, type Boot } from './ended.ts';
import { asError } from './failure-text.ts';
import { type ReadSide, readInThisThread, readInOwnThread } from './read-side.ts';
import { type Ask, asking, type Writing } from '../threads/operations.ts';
import { threadEntry, startThread, type StoreThread } from '../threads/thread.ts';
import { notify, type Watcher } from '../watchers.ts';
import { createStoreClock } from './clock.ts';
import { type EngineOptions, startEngine } from './engine.ts';
import type { StorePlace } from './marks.ts';
import type { News, ToGateway } from '../threads/channel.ts';

/** Counters of one look: transactions wait for it. */
const COUNTERS_AT_ONCE = 100;

/** The folder of the store is created where it is absent. */
export interface EmbeddedRowsOptions extends StorePlace {
  /** How long to wait for another gateway to release the store, ms. */
  readonly lockWaitMs: number;
  /** How far the machine's clock may be ahead of the known time, ms; default 7 days. */
  readonly maxClockJumpMs?: number;
  /** `auto`: in two threads, one writes and one reads for people, if the machine has two cores or more. */
  readonly worker: 'auto' | 'never';
  /** Replaces the machine's clock, ms since the epoch; for tests. Keeps the store in this thread. */
  readonly clock?: () => number;
  /** What runs where the file is, and the module from which a thread imports it as `loadProgram`. */
  readonly program?: { readonly load: () => Promise<Program>; readonly module: URL };
  /** The module from which the thread that reads imports `readProgram`. */
  readonly readProgram?: URL;
}

/**
 * Opens the store in a folder on this machine: SQLite, one gateway at a time. A store that is older than the mark
 * beside it says opens, but is not ready (`store_rolled_back`) and rejects every operation.
 * @throws StoreUnavailable when another gateway holds the store, or its file is damaged or of another format
 */
export async function openEmbeddedRows(options: EmbeddedRowsOptions): Promise<OpenRows> {
  const { path, fence = null, lockWaitMs, clock = null, maxClockJumpMs = MAX_CLOCK_JUMP_MS, program = null } = options;
  const entry = options.worker === 'auto' && clock === null && availableParallelism() >= 2 ? threadEntry() : null;
  const watchers: Watcher[] = [];
  let looker: ReadSide | null = null;
  const sendWatched = (kinds: readonly string[]): void => void ask('watch', kinds).catch(() => {});
  const listener: WriterListener = {
    onChanged(changes) {
      if (changes === null) sendWatched(watchers.flatMap(({ kinds }) => kinds));
      notify(watchers, changes);
    },
    onShut: () => looker?.letGo(),
  };
  const writer =
    entry === null
      ? await writeHere(
          { path, fence, lockWaitMs, maxClockJumpMs, clock, program: (await program?.load()) ?? null, keys: new Map() },
          listener,
        )
      : await writeInThread(
          entry,
          { path, fence, lockWaitMs, maxClockJumpMs, program: program?.module.href ?? null },
          listener,
        );
  const readSide =
    entry === null ? await readInThisThread(path) : readInOwnThread(entry, path, options.readProgram?.href ?? null);
  const { ask, health } = writer;
  const { program: askProgram } = readSide;
  looker = readSide;
  const { seeing, allSeen } = createReads(writer);

  return {
    installId: writer.installId,
    now: writer.now,
    health,
    ended: endedBefore(writer.boot),
    impediment() {
      const { problem } = health();
      return problem?.code === 'clock_ahead' ? new StoreUnavailable(problem.message) : null;
    },
    async close() {
      // Whoever closes the file last moves its journal into it. The writer does that in order.
      await readSide.close();
      // What was seen has still to settle there.
      await allSeen();
      await writer.close();
    },
    ...(program === null ? {} : { program: writer.program }),
    commit: (change) => ask('commit', change),
    read: (workspace, wants, sums, isShown = false) => ask('read', { workspace, wants, sums, isShown }),
    rows: (workspace, names) => seeing(() => readSide.ask('rows', { workspace, names })),
    list: (query) => seeing(() => readSide.ask('list', query)),
    ledger: (query) => seeing(() => readSide.ask('ledger', query)),
    ...(askProgram === null ? {} : { readProgram: (request: string) => seeing(() => askProgram(request)) }),
    sums: (workspace, limit) => sumsOf(ask, workspace, limit),
    prune: (workspace, limit) => ask('prune', { workspace, limit }),
    watch(kinds, listener) {
      watchers.push({ kinds, listener });
      // If the store is away, listeners are told that anything may have changed when it is back.
      sendWatched(kinds);
    },
  };
}

/** Reads of the store that are under way. */
function createReads({ health, ask }: Pick<Writer, 'health' | 'ask'>) {
  let reads = 0;
  let onAllSeen = (): void => {};
  return {
    /** A read may have seen what is not on the disk yet. So its answer waits until that is there. */
    async seeing<Seen>(read: () => Promise<Seen>): Promise<Seen> {
      const of = health();
      if (isShut(of)) throw new StoreUnavailable(of.problem?.message ?? '');
      reads += 1;
      try {
        const seen = await read();
        await ask('settled', null);
        return seen;
      } finally {
        reads -= 1;
        if (reads === 0) onAllSeen();
      }
    },
    async allSeen(): Promise<void> {
      if (reads > 0) await new Promise<void>((resolve) => (onAllSeen = resolve));
    },
  };
}

async function sumsOf(ask: Ask<Writing>, workspace: string, limit: number): Promise<readonly SumListed[]> {
  const found: SumListed[] = [];
  for (;;) {
    const after = found.at(-1)?.name ?? null;
    const most = Math.min(COUNTERS_AT_ONCE, limit - found.length);
    const sums = await ask('sums', { workspace, after, limit: most });
    found.push(...sums);
    if (sums.length < COUNTERS_AT_ONCE) return found;
  }
}

/** The first and the longest wait before a thread that died is started again, ms. */
const RESTART_FIRST_MS = 100;
const RESTART_MOST_MS = 5000;

/** The side of the store that writes: in this thread or in another one. */
interface Writer {
  readonly installId: string;
  now(): number;
  health(): StoreHealth;
  /** When a gateway last started to use the store. */
  boot(): Boot;
  /** Answers once everything in the answer is durable. */
  readonly ask: Ask<Writing>;
  readonly program: OpenProgram;
  close(): Promise<void>;
}

interface WriterListener {
  /** Changes of watched rows; `null`: anything may have changed, and nobody may remember what is watched. */
  onChanged(changed: readonly Watched[] | null): void;
  /** The file is being closed: nobody else should have it open. */
  onShut(): void;
}

/** Whether the file cannot be used now. A clock that is not trusted does not make it unusable. */
function isShut({ problem }: StoreHealth): boolean {
  return problem !== null && problem.code !== 'clock_ahead';
}

/** What the side that writes has told of itself, as of now. */
interface WriterState {
  health: StoreHealth;
  /** A store that is open but not used yet (the clock is not trusted) has none. */
  boot: Boot;
  hear(news: News): void;
}

function listening(listener: WriterListener): WriterState {
  const state: WriterState = {
    health: { ready: false, problem: null, durability: 'fsync', epoch: 0 },
    boot: { at: 0, unwatchedMs: 0 },
    hear(news) {
      switch (news.kind) {
        case 'boot':
          state.boot = news.boot;
          return;
        case 'health':
          state.health = news.health;
          if (isShut(news.health)) listener.onShut();
          return;
        case 'changed':
          listener.onChanged(news.changed);
      }
    },
  };
  return state;
}

async function writeHere(options: Omit<EngineOptions, 'isOwnThread'>, listener: WriterListener): Promise<Writer> {
  const state = listening(listener);
  const engine = await startEngine({ ...options, isOwnThread: false }, state.hear);
  return {
    installId: engine.installId,
    now: engine.now,
    health: () => state.health,
    boot: () => state.boot,
    ask: asking(engine.handlers),
    program: {
      ask: engine.handlers.program,
      lend: (name, key) => keepKey(options.keys, name, key),
      keys: options.keys,
    },
    async close() {
      await engine.close();
    },
  };
}

/** Writes in a thread of its own, so that commits do not block the event loop. A thread that dies is started again. */
async function writeInThread(
  entry: URL,
  options: Omit<EngineOptions, 'isOwnThread' | 'clock' | 'program' | 'keys'> & { readonly program: string | null },
  listener: WriterListener,
): Promise<Writer> {
  const state = listening(listener);
  const keys: ProgramKeys = new Map();
  let thread: StoreThread | null = null;
  /** Why there is no thread. One that starts says that the store is ready before it can be asked. */
  let away = '';
  let seen = 0;
  let closing: (() => void) | null = null;
  let restartTimer: NodeJS.Timeout | null = null;

  /** Starts the thread. Resolves when the store is open, rejects when it cannot be opened. */
  function start(): Promise<Extract<ToGateway, { kind: 'open' }>> {
    return new Promise((resolve, reject) => {
      const started = startThread(
        entry,
        { kind: 'write', ...options },
        (message) => {
          switch (message.kind) {
            case 'open':
              // Nothing was asked of it before, and it has none yet: not even one that came while it started.
              for (const [name, key] of keys) started.deliver({ kind: 'key', name, key });
              thread = started;
              seen = Math.max(seen, message.now);
              resolve(message);
              return;
            case 'refused':
              reject(new StoreUnavailable(message.message));
              return;
            case 'closed':
              if (message.mayEnd) return;
              started.unref();
              closing?.();
              return;
            case 'boot':
            case 'health':
            case 'changed':
              state.hear(message);
              return;
            case 'fleet':
            case 'ended':
              throw new TypeError('only the thread of a store on Redis has such news');
          }
        },
        (time) => {
          seen = Math.max(seen, time);
        },
        (why) => {
          if (thread === started) ended(why);
          else reject(new StoreUnavailable(why));
        },
      );
    });
  }

  function ended(why: string): void {
    if (closing !== null) {
      closing();
      return;
    }
    thread = null;
    away = why;
    restartAfter(RESTART_FIRST_MS);
  }

  function restartAfter(waitMs: number): void {
    restartTimer = setTimeout(() => {
      start().then(
        () => listener.onChanged(null),
        (error: unknown) => {
          away = asError(error).message;
          restartAfter(Math.min(waitMs * 2, RESTART_MOST_MS));
        },
      );
    }, waitMs).unref();
  }

  const health = (): StoreHealth =>
    thread === null
      ? { ...state.health, ready: false, problem: { code: 'store_unavailable', message: away } }
      : state.health;
  const isClosed = (): StoreUnavailable => new StoreUnavailable(health().problem?.message ?? 'The store is closed.');
  const first = await start();
  const clock = createStoreClock(first.now, options.maxClockJumpMs);

  return {
    installId: first.installId,
    now: () => Math.max(seen, clock.now()),
    health,
    boot: () => state.boot,
    ask: (op, asked) => (thread !== null && closing === null ? thread.ask(op, asked) : Promise.reject(isClosed())),
    program: {
      ask(request, done, failed) {
        if (thread !== null && closing === null) thread.send('program', request, done, failed);
        else failed(isClosed());
      },
      lend(name, key) {
        keepKey(keys, name, key);
        thread?.deliver({ kind: 'key', name, key });
      },
      keys,
    },
    close() {
      return new Promise<void>((resolve) => {
        if (restartTimer !== null) clearTimeout(restartTimer);
        if (thread === null || closing !== null) {
          resolve();
          return;
        }
        closing = resolve;
        thread.deliver({ kind: 'close' });
      });
    },
  };
}
