import type { KeyObject } from 'node:crypto';
import { parentPort } from 'node:worker_threads';
import { StoreUnavailable } from '../../effects/store.ts';
import { DONE, FAULT, type ToGateway, type ToStore, UNAVAILABLE } from './channel.ts';
import { type Codec, Decoder, Encoder, FORMS, type Handlers, type Operation } from './operations.ts';

export interface Serving {
  /** The store's time, for the gateway's clock. */
  now(): number;
  hold(name: string, key: KeyObject): void;
  letGo(): void;
  /** Resolves with whether the thread may end. */
  close(): Promise<boolean>;
}

export function post(message: ToGateway): void {
  parentPort?.postMessage(message);
}

/**
 * Answers the gateway's requests. All replies of one turn are one message.
 * @returns posts what was answered so far, so that what is posted next comes after it
 */
export function serve<Of extends Operation>(handlers: Handlers<Of>, serving: Serving): () => void {
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
        if (!isOneOf(handlers, op)) throw new TypeError(`a thread of the store does not do ${op}`);
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

  return postReplies;
}

/** A thread is only asked for what it does. */
function isOneOf<Of extends Operation>(handlers: Handlers<Of>, op: string): op is Of {
  return op in handlers;
}
