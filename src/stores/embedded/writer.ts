import { type StoreHealth, StoreUnavailable } from '../../effects/store.ts';
import type { Watched } from '../port.ts';
import { createStoreClock } from './clock.ts';
import { type EngineOptions, startEngine } from './engine.ts';
import type { ToGateway, WriterData } from './threads/channel.ts';
import type { Boot } from './ended.ts';
import type { Ask, Writing } from './threads/operations.ts';
import { startThread, type StoreThread } from './threads/thread.ts';

/** The first and the longest wait before a thread that died is started again, ms. */
const RESTART_FIRST_MS = 100;
const RESTART_MOST_MS = 5000;

/** A store that is open but not used yet (the clock is not trusted) has no boot. */
const NEVER_BEGUN: Boot = { at: 0, unwatchedMs: 0 };

/** The side of the store that writes: in this thread or in another one. */
export interface Writer {
  readonly installId: string;
  now(): number;
  health(): StoreHealth;
  /** When a gateway last started to use the store. */
  boot(): Boot;
  /** Answers once everything in the answer is durable. */
  readonly ask: Ask<Writing>;
  /** Changes of rows of these kinds are told from now on. */
  watch(kinds: readonly string[]): void;
  close(): Promise<void>;
}

export interface WriterListener {
  /** Changes of watched rows; `null`: anything may have changed. */
  onTold(told: readonly Watched[] | null): void;
  /** The file is being closed: nobody else should have it open. */
  onShut(): void;
}

/** Whether the file cannot be used now. A clock that is not trusted does not make it unusable. */
export function isShut({ problem }: StoreHealth): boolean {
  return problem !== null && problem.code !== 'clock_ahead';
}

/** Writes in this thread. */
export async function writeHere(
  options: Omit<EngineOptions, 'isOwnThread'>,
  listener: WriterListener,
): Promise<Writer> {
  let boot = NEVER_BEGUN;
  const own = { ...options, isOwnThread: false };
  const engine = await startEngine(own, {
    onTold: (told) => listener.onTold(told),
    onHealth(health) {
      if (isShut(health)) listener.onShut();
    },
    onBoot(begun) {
      boot = begun;
    },
  });
  return {
    installId: engine.installId,
    now: engine.now,
    health: engine.health,
    boot: () => boot,
    ask: (op, asked) => new Promise((resolve, reject) => engine.handlers[op](asked, resolve, reject)),
    watch: (kinds) =>
      engine.handlers.watch(
        kinds,
        () => {},
        () => {},
      ),
    close: engine.close,
  };
}

type Opened = Extract<ToGateway, { kind: 'open' }>;

/** Writes in a thread of its own, so that commits do not block the event loop. A thread that dies is started again. */
export async function writeInThread(entry: URL, data: WriterData, listener: WriterListener): Promise<Writer> {
  /** Watched kinds, for when the thread is started again. */
  const watched = new Set<string>();
  let thread: StoreThread | null = null;
  let seen = 0;
  let boot = NEVER_BEGUN;
  let health: StoreHealth;
  let closing: (() => void) | null = null;
  let restartTimer: NodeJS.Timeout | null = null;

  /** Starts the thread. Resolves when the store is open, rejects when it cannot be opened. */
  function start(): Promise<Opened> {
    return new Promise((resolve, reject) => {
      const started = startThread(
        entry,
        data,
        (message) => {
          switch (message.kind) {
            case 'open':
              thread = started;
              resolve(message);
              return;
            case 'refused':
              reject(new StoreUnavailable(message.message));
              return;
            case 'replies':
              seen = Math.max(seen, message.now);
              return;
            case 'health':
              health = message.health;
              if (isShut(health)) listener.onShut();
              return;
            case 'boot':
              boot = message.boot;
              return;
            case 'told':
              listener.onTold(message.told);
              return;
            case 'closed':
              // Then the thread keeps running, see worker.ts.
              if (health.problem?.code === 'store_sync_failed') {
                started.unref();
                closing?.();
              }
          }
        },
        (why) => {
          if (thread === started) ended(why);
          else reject(new StoreUnavailable(why));
        },
      );
    });
  }

  function ended(why: string): void {
    thread = null;
    if (closing !== null) {
      closing();
      return;
    }
    health = { ...health, ready: false, problem: { code: 'store_unavailable', message: why } };
    restartAfter(RESTART_FIRST_MS);
  }

  function restartAfter(waitMs: number): void {
    restartTimer = setTimeout(() => {
      start().then(
        (opened) => {
          health = opened.health;
          seen = Math.max(seen, opened.now);
          tellWatched();
          listener.onTold(null);
        },
        () => restartAfter(Math.min(waitMs * 2, RESTART_MOST_MS)),
      );
    }, waitMs).unref();
  }

  const ask: Ask<Writing> = (op, asked) =>
    thread !== null && closing === null
      ? thread.ask(op, asked)
      : Promise.reject(new StoreUnavailable(health.problem?.message ?? 'The store is closed.'));

  /** If the thread is away, it is told when it is back. */
  function tellWatched(): void {
    ask('watch', [...watched]).catch(() => {});
  }

  const first = await start();
  health = first.health;
  seen = first.now;
  const clock = createStoreClock(first.now, data.maxClockJumpMs);

  return {
    installId: first.installId,
    now: () => Math.max(seen, clock.now()),
    health: () => health,
    boot: () => boot,
    ask,
    watch(kinds) {
      for (const kind of kinds) watched.add(kind);
      tellWatched();
    },
    close() {
      return new Promise<void>((resolve) => {
        if (restartTimer !== null) clearTimeout(restartTimer);
        if (thread === null) {
          resolve();
          return;
        }
        closing = resolve;
        thread.tell({ kind: 'close' });
      });
    },
  };
}
