import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { type StoreHealth, StoreUnavailable } from '../../effects/store.ts';
import { decodeForGateway, type StoreThreadData, type ToGateway } from './channel.ts';
import { createStoreClock, type StoreClock } from './clock.ts';
import type { Runner, RunnerListener } from './in-process.ts';
import type { OperationName, Operations } from './operations.ts';

/** Waits before a thread that died is started again, ms. */
const RESTART_FIRST_MS = 100;
const RESTART_MOST_MS = 5000;

interface Waiting {
  resolve(reply: unknown): void;
  reject(error: Error): void;
}

/**
 * Runs operations in a thread of their own, so that commits do not hold up the event loop.
 * @returns `null` where there is nothing to gain (one core), or no thread can run this program's source
 */
export async function runInWorker(data: StoreThreadData, listener: RunnerListener): Promise<Runner | null> {
  const entry = workerEntry();
  if (entry === null || availableParallelism() < 2) return null;

  const waiting = new Map<number, Waiting>();
  let outgoing: string[] = [];
  let lastId = 0;
  let worker: Worker | null = null;
  let clock: StoreClock = createStoreClock(0);
  let seen = 0;
  let health: StoreHealth;
  let closing: (() => void) | null = null;
  let restartTimer: NodeJS.Timeout | null = null;

  function receive(message: ToGateway): void {
    switch (message.kind) {
      case 'replies':
        seen = Math.max(seen, message.now);
        for (const [id, reply, failure, text] of message.replies) {
          const caller = waiting.get(id);
          waiting.delete(id);
          if (failure === undefined) caller?.resolve(reply);
          else caller?.reject(failure === 'unavailable' ? new StoreUnavailable(text) : new Error(text));
        }
        return;
      case 'health':
        health = message.health;
        return;
      case 'keys':
        listener.onKeysChanged(message.handles);
        return;
      case 'pauses':
        listener.onPausesChanged(message.workspace);
        return;
      case 'open':
      case 'refused':
      case 'closed':
        return;
    }
  }

  /** Starts the thread; resolves when the store is open, rejects when it cannot be. */
  function start(): Promise<Extract<ToGateway, { kind: 'open' }>> {
    return new Promise((resolve, reject) => {
      const started = new Worker(entry ?? '', { workerData: data });
      let opened = false;
      started.on('message', (text: string) => {
        const message = decodeForGateway(text);
        if (message.kind === 'open') {
          opened = true;
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
        if (opened) ended(why);
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
        (open) => {
          health = open.health;
          seen = Math.max(seen, open.now);
          listener.onKeysChanged(null);
        },
        () => restartAfter(Math.min(waitMs * 2, RESTART_MOST_MS)),
      );
    }, waitMs).unref();
  }

  function send(): void {
    const batch = outgoing;
    outgoing = [];
    worker?.postMessage(`[${batch.join(',')}]`);
  }

  const first = await start();
  health = first.health;
  seen = first.now;
  clock = createStoreClock(first.now);

  return {
    installId: first.installId,
    now: () => Math.max(seen, clock()),
    health: () => health,
    call<Name extends OperationName>(name: Name, request: Operations[Name]['request']) {
      return new Promise<Operations[Name]['reply']>((resolve, reject) => {
        if (worker === null || closing !== null) {
          reject(new StoreUnavailable(health.problem?.message ?? 'The store is closed.'));
          return;
        }
        lastId += 1;
        if (outgoing.length === 0) setImmediate(send);
        outgoing.push(JSON.stringify([lastId, name, request]));
        // The answer under this id is the answer of this operation.
        waiting.set(lastId, { resolve: resolve as (reply: unknown) => void, reject });
      });
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
        worker.postMessage('null');
      });
    },
  };
}

/** The compiled thread beside this file; the source itself where Node runs TypeScript. */
function workerEntry(): URL | null {
  if (import.meta.url.endsWith('.js')) return new URL('./worker.js', import.meta.url);
  return 'typescript' in process.features && process.features.typescript === 'strip'
    ? new URL('./worker.ts', import.meta.url)
    : null;
}
