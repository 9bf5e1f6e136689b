import { type StoreHealth, StoreUnavailable } from '../../effects/store.ts';
import type { AskProgram } from '../open-rows.ts';
import type { Watched } from '../port.ts';
import { createStoreClock } from './clock.ts';
import { type EngineOptions, startEngine } from './engine.ts';
import type { News, ToGateway } from './threads/channel.ts';
import type { Boot } from './ended.ts';
import { type Ask, asking, type Writing } from './threads/operations.ts';
import { startThread, type StoreThread } from './threads/thread.ts';

/** The first and the longest wait before a thread that died is started again, ms. */
const RESTART_FIRST_MS = 100;
const RESTART_MOST_MS = 5000;

/** The side of the store that writes: in this thread or in another one. */
export interface Writer {
  readonly installId: string;
  now(): number;
  health(): StoreHealth;
  /** When a gateway last started to use the store. */
  boot(): Boot;
  /** Answers once everything in the answer is durable. */
  readonly ask: Ask<Writing>;
  readonly program: AskProgram;
  close(): Promise<void>;
}

export interface WriterListener {
  /** Changes of watched rows; `null`: anything may have changed, and nobody may remember what is watched. */
  onChanged(changed: readonly Watched[] | null): void;
  /** The file is being closed: nobody else should have it open. */
  onShut(): void;
}

/** Whether the file cannot be used now. A clock that is not trusted does not make it unusable. */
export function isShut({ problem }: StoreHealth): boolean {
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

/** Writes in this thread. */
export async function writeHere(
  options: Omit<EngineOptions, 'isOwnThread'>,
  listener: WriterListener,
): Promise<Writer> {
  const state = listening(listener);
  const engine = await startEngine({ ...options, isOwnThread: false }, state.hear);
  return {
    installId: engine.installId,
    now: engine.now,
    health: () => state.health,
    boot: () => state.boot,
    ask: asking(engine.handlers),
    program: engine.handlers.program,
    async close() {
      await engine.close();
    },
  };
}

type Opened = Extract<ToGateway, { kind: 'open' }>;

/** Writes in a thread of its own, so that commits do not block the event loop. A thread that dies is started again. */
export async function writeInThread(
  entry: URL,
  options: Omit<EngineOptions, 'isOwnThread' | 'clock' | 'program'> & { readonly program: string | null },
  listener: WriterListener,
): Promise<Writer> {
  const state = listening(listener);
  let thread: StoreThread | null = null;
  let seen = 0;
  let closing: (() => void) | null = null;
  let restartTimer: NodeJS.Timeout | null = null;

  /** Starts the thread. Resolves when the store is open, rejects when it cannot be opened. */
  function start(): Promise<Opened> {
    return new Promise((resolve, reject) => {
      const started = startThread(
        entry,
        { kind: 'write', ...options },
        (message) => {
          switch (message.kind) {
            case 'open':
              thread = started;
              seen = Math.max(seen, message.now);
              resolve(message);
              return;
            case 'refused':
              reject(new StoreUnavailable(message.message));
              return;
            case 'replies':
              seen = Math.max(seen, message.now);
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
    state.health = { ...state.health, ready: false, problem: { code: 'store_unavailable', message: why } };
    restartAfter(RESTART_FIRST_MS);
  }

  function restartAfter(waitMs: number): void {
    restartTimer = setTimeout(() => {
      start().then(
        () => listener.onChanged(null),
        () => restartAfter(Math.min(waitMs * 2, RESTART_MOST_MS)),
      );
    }, waitMs).unref();
  }

  const isClosed = (): StoreUnavailable =>
    new StoreUnavailable(state.health.problem?.message ?? 'The store is closed.');
  const first = await start();
  const clock = createStoreClock(first.now, options.maxClockJumpMs);

  return {
    installId: first.installId,
    now: () => Math.max(seen, clock.now()),
    health: () => state.health,
    boot: () => state.boot,
    ask: (op, asked) => (thread !== null && closing === null ? thread.ask(op, asked) : Promise.reject(isClosed())),
    program(request, done, failed) {
      if (thread !== null && closing === null) thread.send('program', request, done, failed);
      else failed(isClosed());
    },
    close() {
      return new Promise<void>((resolve) => {
        if (restartTimer !== null) clearTimeout(restartTimer);
        if (thread === null) {
          resolve();
          return;
        }
        closing = resolve;
        thread.deliver({ kind: 'close' });
      });
    },
  };
}
