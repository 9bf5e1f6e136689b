import { parentPort } from 'node:worker_threads';
import { StoreUnavailable } from '../../../effects/store.ts';
import type { ToGateway, ToStore } from './channel.ts';
import { type Reply, writeReply } from './reply.ts';
import { type Request, readRequest } from './request.ts';
import { messageReader, messageWriter } from './wire.ts';

/** What a thread of the store does. */
export interface Serving {
  /** The store's time, for the gateway's clock. */
  now(): number;
  /** Exactly one of `done` and `failed` is called. */
  perform(request: Request, done: (reply: Reply) => void, failed: (error: Error) => void): void;
  letGo(): void;
  /** Resolves with whether the thread may end. */
  close(): Promise<boolean>;
}

export function post(message: ToGateway): void {
  parentPort?.postMessage(message);
}

/** Answers the gateway's requests. All replies of one turn are one message. */
export function serve(serving: Serving): void {
  const replies = messageWriter();
  let isPosting = false;

  function postReplies(): void {
    isPosting = false;
    if (!replies.isEmpty()) post({ kind: 'replies', now: serving.now(), message: replies.take() });
  }

  function reply(id: number, said: Reply): void {
    replies.number(id);
    writeReply(replies, said);
    if (isPosting) return;
    isPosting = true;
    queueMicrotask(postReplies);
  }

  function take(id: number, request: Request): void {
    serving.perform(
      request,
      (said) => reply(id, said),
      (error) => {
        const kind = error instanceof StoreUnavailable ? 'unavailable' : 'fault';
        reply(id, { op: 'failed', kind, message: error.message });
      },
    );
  }

  async function close(): Promise<void> {
    const mayEnd = await serving.close();
    postReplies();
    post({ kind: 'closed' });
    if (mayEnd) parentPort?.close();
  }

  parentPort?.on('message', (message: ToStore) => {
    switch (message.kind) {
      case 'requests': {
        const reader = messageReader(message.message);
        while (!reader.isAtEnd()) take(reader.number(), readRequest(reader));
        return;
      }
      case 'let_go':
        serving.letGo();
        return;
      case 'close':
        void close();
    }
  });
}
