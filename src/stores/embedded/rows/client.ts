import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { type StoreHealth, StoreUnavailable } from '../../../effects/store.ts';
import { passingMap } from '../../passing-map.ts';
import { createStoreClock } from '../clock.ts';
import type { ThreadData, ToGateway, ToStore } from './channel.ts';
import { readReply, type Reply } from './reply.ts';
import { type Request, writeRequest } from './request.ts';
import { NEVER_BEGUN, type OnTold, type Runner } from './runner.ts';
import { type Message, messageReader, messageWriter } from './wire.ts';

/** The first and the longest wait before a thread that died is started again, ms. */
const RESTART_FIRST_MS = 100;
const RESTART_MOST_MS = 5000;

interface Waiting {
  resolve(reply: Reply): void;
  reject(error: Error): void;
}

type Opened = Extract<ToGateway, { kind: 'open' }>;

/**
 * Runs requests in their own thread, so that commits do not block the event loop. All requests of one turn are one
 * message.
 * @returns `null` if this gains nothing (one core), or no thread can run this program's source
 */
export async function runRowsInWorker(data: ThreadData, onTold: OnTold): Promise<Runner | null> {
  const entry = workerEntry();
  if (entry === null || availableParallelism() < 2) return null;

  const waiting = passingMap<number, Waiting>();
  const outgoing = messageWriter();
  /** Watched kinds, for when the thread is started again. */
  const watches: Request[] = [];
  let lastId = 0;
  let worker: Worker | null = null;
  let seen = 0;
  let boot = NEVER_BEGUN;
  let health: StoreHealth;
  let closing: (() => void) | null = null;
  let restartTimer: NodeJS.Timeout | null = null;

  function takeReplies(message: Message): void {
    const reader = messageReader(message);
    while (!reader.isAtEnd()) {
      const id = reader.number();
      const reply = readReply(reader);
      const caller = waiting.get(id);
      if (caller === undefined) continue;
      waiting.delete(id);
      if (reply.op !== 'failed') caller.resolve(reply);
      else if (reply.kind === 'unavailable') caller.reject(new StoreUnavailable(reply.message));
      else caller.reject(new Error(reply.message));
    }
  }

  function receive(message: ToGateway): void {
    switch (message.kind) {
      case 'replies':
        seen = Math.max(seen, message.now);
        takeReplies(message.message);
        return;
      case 'health':
        health = message.health;
        return;
      case 'boot':
        boot = message.boot;
        return;
      case 'told':
        onTold(message.told);
        return;
      case 'closed':
        // Then the thread keeps running, see worker.ts.
        if (health.problem?.code === 'store_sync_failed') {
          worker?.unref();
          closing?.();
        }
        return;
      case 'open':
      case 'refused':
        return;
    }
  }

  /** Starts the thread. Resolves when the store is open, rejects when it cannot be opened. */
  function start(): Promise<Opened> {
    return new Promise((resolve, reject) => {
      const started = new Worker(entry ?? '', { workerData: data });
      let isOpen = false;
      started.on('message', (message: ToGateway) => {
        if (message.kind === 'open') {
          isOpen = true;
          worker = started;
          resolve(message);
        } else if (message.kind === 'refused') reject(new StoreUnavailable(message.message));
        else receive(message);
      });
      let fault = 'its thread ended';
      started.on('error', (error) => {
        fault = error.message;
      });
      started.on('exit', () => {
        const why = `The store stopped: ${fault}.`;
        if (isOpen) ended(why);
        else reject(new StoreUnavailable(why));
      });
    });
  }

  function ended(why: string): void {
    worker = null;
    const callers = [...waiting.values()];
    waiting.clear();
    for (const { reject } of callers) reject(new StoreUnavailable(why));
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
          for (const watch of watches) ask(watch).catch(() => {});
          onTold(null);
        },
        () => restartAfter(Math.min(waitMs * 2, RESTART_MOST_MS)),
      );
    }, waitMs).unref();
  }

  function send(): void {
    if (outgoing.isEmpty()) return;
    const message = outgoing.take();
    post({ kind: 'requests', message });
  }

  function post(message: ToStore): void {
    worker?.postMessage(message);
  }

  function ask(request: Request): Promise<Reply> {
    return new Promise((resolve, reject) => {
      if (worker === null || closing !== null) {
        reject(new StoreUnavailable(health.problem?.message ?? 'The store is closed.'));
        return;
      }
      if (outgoing.isEmpty()) setImmediate(send);
      lastId += 1;
      outgoing.number(lastId);
      writeRequest(outgoing, request);
      waiting.set(lastId, { resolve, reject });
    });
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
    ask(request) {
      if (request.op === 'watch') watches.push(request);
      return ask(request);
    },
    close() {
      return new Promise<void>((resolve) => {
        if (restartTimer !== null) clearTimeout(restartTimer);
        if (worker === null) {
          resolve();
          return;
        }
        closing = resolve;
        send();
        post({ kind: 'close' });
      });
    },
  };
}

/** The compiled thread beside this file, or the source if Node runs TypeScript. */
function workerEntry(): URL | null {
  if (import.meta.url.endsWith('.js')) return new URL('./worker.js', import.meta.url);
  return 'typescript' in process.features && process.features.typescript === 'strip'
    ? new URL('./worker.ts', import.meta.url)
    : null;
}
