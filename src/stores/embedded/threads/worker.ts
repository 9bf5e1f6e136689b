import type { KeyObject } from 'node:crypto';
import { workerData, parentPort } from 'node:worker_threads';
import { keepKey, type Program, type ProgramKeys, type ReadOperation, type ReadProgram } from '../../open-rows.ts';
import { loadDriver } from '../driver.ts';
import { startEngine } from '../engine.ts';
import { openReads } from '../read-side.ts';
import { type ThreadData, DONE, FAULT, type ToGateway, type ToStore, UNAVAILABLE } from './channel.ts';
import { StoreUnavailable } from '../../../effects/store.ts';
import {
  asking,
  FORMS,
  type Handlers,
  type Operation,
  type Codec,
  Decoder,
  Encoder,
  type Reading,
} from './operations.ts';

/** A thread that writes, or one that reads for people: messages with requests and replies. */

const data: ThreadData = workerData;

try {
  if (data.kind === 'write') {
    const loaded: { readonly loadProgram: () => Promise<Program> } | null =
      data.program === null ? null : await import(data.program);
    const program = (await loaded?.loadProgram()) ?? null;
    const keys: ProgramKeys = new Map();
    const engine = await startEngine({ ...data, program, keys, clock: null, isOwnThread: true }, post);
    // When a thread ends, its connections are closed. One that could not be synced must stay open until the process ends.
    serve(engine.handlers, {
      now: engine.now,
      hold: (name, key) => keepKey(keys, name, key),
      letGo() {},
      close: engine.close,
    });
    post({ kind: 'open', installId: engine.installId, now: engine.now() });
  } else {
    const reads = openReads(data.path, await loadDriver());
    const answer = programOf(data.program, reads.handlers);
    const handlers: Handlers<Reading> = { ...reads.handlers, read_program: (...asked) => void answer(...asked) };
    serve(handlers, {
      // It has no clock: the thread that writes says what time it is.
      now: () => 0,
      hold() {},
      letGo: reads.close,
      async close() {
        reads.close();
        return true;
      },
    });
  }
} catch (error) {
  post({ kind: 'refused', message: error instanceof Error ? error.message : String(error) });
}

/** Asks the program of the thread that reads, which is loaded when it is asked for the first time. */
function programOf(
  module: string | null,
  handlers: Handlers<ReadOperation>,
): (...asked: Parameters<Handlers<Reading>['read_program']>) => Promise<void> {
  const ask = asking(handlers);
  let running: ReturnType<ReadProgram> | null = null;
  return async (request, done, failed) => {
    let answer: string;
    try {
      if (module === null) throw new TypeError('this thread runs no program');
      const loaded: { readonly readProgram: ReadProgram } = await import(module);
      running ??= loaded.readProgram({
        rows: (workspace, names) => ask('rows', { workspace, names }),
        list: (query) => ask('list', query),
        ledger: (query) => ask('ledger', query),
      });
      answer = await running(request);
    } catch (error) {
      failed(error instanceof Error ? error : new Error(String(error)));
      return;
    }
    done(answer);
  };
}

/** What a thread of the store does beside its operations. */
export interface Serving {
  /** The store's time, for the gateway's clock. */
  now(): number;
  /** Takes a key for its program. */
  hold(name: string, key: KeyObject): void;
  letGo(): void;
  /** Resolves with whether the thread may end. */
  close(): Promise<boolean>;
}

export function post(message: ToGateway): void {
  parentPort?.postMessage(message);
}

/** Answers the gateway's requests. All replies of one turn are one message. */
export function serve<Of extends Operation>(handlers: Handlers<Of>, serving: Serving): void {
  const replies = new Encoder();
  let isPosting = false;

  function postReplies(): void {
    isPosting = false;
    const message = replies.take();
    if (message !== null) post(message);
  }

  function reply(id: number, status: number): void {
    if (!isPosting) {
      isPosting = true;
      queueMicrotask(postReplies);
      replies.number(serving.now());
    }
    replies.number(id);
    replies.number(status);
  }

  function take<Op extends Of>(op: Op, id: number, request: Codec): void {
    const forms = FORMS[op];
    handlers[op](
      forms.asked(request),
      (answer) => {
        reply(id, DONE);
        forms.answer(replies, answer);
      },
      (error) => {
        reply(id, error instanceof StoreUnavailable ? UNAVAILABLE : FAULT);
        replies.text(error.message);
      },
    );
  }

  /** A thread is only asked for what it does. */
  function isMine(op: string): op is Of {
    return op in handlers;
  }

  async function close(): Promise<void> {
    const mayEnd = await serving.close();
    postReplies();
    post({ kind: 'closed', mayEnd });
    if (mayEnd) parentPort?.close();
  }

  parentPort?.on('message', (message: ToStore) => {
    if (typeof message === 'string') {
      const requests = new Decoder(message);
      do {
        const id = requests.number();
        const op = requests.text();
        if (!isMine(op)) throw new TypeError(`a thread of the store does not do ${op}`);
        take(op, id, requests);
      } while (!requests.isAtEnd());
      return;
    }
    switch (message.kind) {
      case 'key':
        serving.hold(message.name, message.key);
        return;
      case 'let_go':
        serving.letGo();
        return;
      case 'close':
        void close();
    }
  });
}
