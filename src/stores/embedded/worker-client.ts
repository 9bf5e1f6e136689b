import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { EffectRecord } from '../../effects/effect.ts';
import { type StoreHealth, StoreUnavailable } from '../../effects/store.ts';
import {
  type AnyRequest,
  decodeForGateway,
  encodeCalls,
  isAdmission,
  isSettlement,
  MESSAGE_CALLS,
  type ReplyMessage,
  type StoreThreadData,
  type ToGateway,
  type ToStore,
} from './channel.ts';
import { passingMap } from '../passing-map.ts';
import { createStoreClock, type StoreClock } from './clock.ts';
import type { Runner, RunnerListener } from './in-process.ts';
import type { OperationName, Operations } from './operations.ts';
import { repeatAdmission, repeatSettlement } from './repeat.ts';

/** Waits before a thread that died is started again, ms. */
const RESTART_FIRST_MS = 100;
const RESTART_MOST_MS = 5000;

interface Waiting {
  readonly request: AnyRequest;
  /** The executing record that a settlement is of, where this side has it. */
  readonly executing: EffectRecord | null;
  resolve(reply: unknown): void;
  reject(error: Error): void;
}

/** Executing effects that are remembered, so that settling need not send them back. */
const KNOWN_CALLS = 10_000;

/**
 * Runs operations in a thread of their own, so that commits do not hold up the event loop.
 * @returns `null` where there is nothing to gain (one core), or no thread can run this program's source
 */
export async function runInWorker(data: StoreThreadData, listener: RunnerListener): Promise<Runner | null> {
  const entry = workerEntry();
  if (entry === null || availableParallelism() < 2) return null;

  const waiting = passingMap<number, Waiting>();
  const known = passingMap<string, EffectRecord>();
  let outgoing: string[] = [];
  let outgoingCalls = 0;
  let lastId = 0;
  let worker: Worker | null = null;
  let clock: StoreClock = createStoreClock(0, data.maxClockJumpMs);
  let seen = 0;
  let health: StoreHealth;
  let closing: (() => void) | null = null;
  let restartTimer: NodeJS.Timeout | null = null;

  function answer(caller: Waiting, message: ReplyMessage): void {
    switch (message[1]) {
      case 'unavailable':
        caller.reject(new StoreUnavailable(message[2]));
        return;
      case 'fault':
        caller.reject(new Error(message[2]));
        return;
      case 'reply':
      case 'admitted': {
        const reply = replyOf(caller, message);
        if (hasEffect(reply)) remember(reply.effect);
        caller.resolve(reply);
        return;
      }
      case 'settled': {
        const { request, executing } = caller;
        if (!isSettlement(request) || executing === null)
          throw new TypeError('the store settled what nobody here knows');
        known.delete(executing.id);
        caller.resolve(repeatSettlement(request, executing, message[2]));
      }
    }
  }

  function remember(effect: EffectRecord): void {
    if (effect.life.state !== 'executing') {
      known.delete(effect.id);
      return;
    }
    known.set(effect.id, effect);
    if (known.size <= KNOWN_CALLS) return;
    for (const [oldest] of known) {
      known.delete(oldest);
      return;
    }
  }

  function receive(message: ToGateway): void {
    switch (message.kind) {
      case 'replies':
        seen = Math.max(seen, message.now);
        for (const reply of message.replies) {
          const caller = waiting.get(reply[0]);
          waiting.delete(reply[0]);
          if (caller === undefined) continue;
          try {
            answer(caller, reply);
          } catch (error) {
            // The step is durable, and its answer unreadable: whoever asked must hear of it all the same.
            caller.reject(error instanceof Error ? error : new Error(String(error)));
          }
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
      case 'closed':
        // Its thread goes on then, see worker.ts.
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
    if (outgoing.length === 0) return;
    const batch: ToStore = outgoing.join('\n');
    outgoing = [];
    outgoingCalls = 0;
    worker?.postMessage(batch);
  }

  const first = await start();
  health = first.health;
  seen = first.now;
  clock = createStoreClock(first.now, data.maxClockJumpMs);

  return {
    installId: first.installId,
    now: () => Math.max(seen, clock.now()),
    health: () => health,
    call<Name extends OperationName>(name: Name, request: Operations[Name]['request']) {
      return new Promise<Operations[Name]['reply']>((resolve, reject) => {
        if (worker === null || closing !== null) {
          reject(new StoreUnavailable(health.problem?.message ?? 'The store is closed.'));
          return;
        }
        lastId += 1;
        if (outgoingCalls === 0) setImmediate(send);
        const asked: AnyRequest = request;
        const executing = isSettlement(asked) ? (known.get(asked.effectId) ?? null) : null;
        outgoing.push(...encodeCalls(lastId, name, asked, executing?.attempt ?? 0));
        outgoingCalls += 1;
        if (outgoingCalls === MESSAGE_CALLS) send();
        // The answer under this id is the answer of this operation.
        waiting.set(lastId, { request, executing, resolve: resolve as (reply: unknown) => void, reject });
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
        worker.postMessage(null);
      });
    },
  };
}

function replyOf(
  { request }: Waiting,
  reply: Extract<ReplyMessage, readonly [number, 'reply' | 'admitted', ...unknown[]]>,
): unknown {
  if (reply[1] === 'reply') return reply[2];
  const [, , ...seen] = reply;
  if (!isAdmission(request)) throw new TypeError('the store admitted what was not to be admitted');
  return repeatAdmission(request, seen);
}

/** Whether an answer speaks of an effect. */
function hasEffect(reply: unknown): reply is { readonly effect: EffectRecord } {
  return typeof reply === 'object' && reply !== null && 'effect' in reply && reply.effect !== null;
}

/** The compiled thread beside this file; the source itself where Node runs TypeScript. */
function workerEntry(): URL | null {
  if (import.meta.url.endsWith('.js')) return new URL('./worker.js', import.meta.url);
  return 'typescript' in process.features && process.features.typescript === 'strip'
    ? new URL('./worker.ts', import.meta.url)
    : null;
}
