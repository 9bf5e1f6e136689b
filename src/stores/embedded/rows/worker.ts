import { parentPort, workerData } from 'node:worker_threads';
import { StoreUnavailable } from '../../../effects/store.ts';
import type { ThreadData, ToGateway, ToStore } from './channel.ts';
import { type RowEngine, startRowEngine } from './perform.ts';
import { type Reply, writeReply } from './reply.ts';
import { readRequest } from './request.ts';
import { messageReader, messageWriter, type Message } from './wire.ts';

/** The thread of the store: the engine, and messages with requests and replies over the port. */

const { path, lockWaitMs, maxClockJumpMs }: ThreadData = workerData;
const replies = messageWriter();
let isPosting = false;

function post(message: ToGateway): void {
  parentPort?.postMessage(message);
}

/** All replies of one turn are one message. */
function reply(rows: RowEngine, id: number, said: Reply): void {
  replies.number(id);
  writeReply(replies, said);
  if (isPosting) return;
  isPosting = true;
  queueMicrotask(() => postReplies(rows));
}

function postReplies({ engine }: RowEngine): void {
  isPosting = false;
  if (!replies.isEmpty()) post({ kind: 'replies', now: engine.now(), message: replies.take() });
}

function take(rows: RowEngine, message: Message): void {
  const reader = messageReader(message);
  while (!reader.isAtEnd()) {
    const id = reader.number();
    rows.perform(
      readRequest(reader),
      (said) => reply(rows, id, said),
      (error) => {
        const kind = error instanceof StoreUnavailable ? 'unavailable' : 'fault';
        reply(rows, id, { op: 'failed', kind, message: error.message });
      },
    );
  }
}

async function close(rows: RowEngine): Promise<void> {
  await rows.engine.close();
  postReplies(rows);
  post({ kind: 'closed' });
  // When a thread ends, its connections are closed. One that could not be synced must stay open until the process ends.
  if (rows.engine.health().problem?.code !== 'store_sync_failed') parentPort?.close();
}

try {
  const rows = await startRowEngine(
    { path, lockWaitMs, maxClockJumpMs, clock: null },
    {
      onHealth: (health) => post({ kind: 'health', health }),
      onTold: (told) => post({ kind: 'told', told }),
      onBatch() {},
      onBoot: (boot) => post({ kind: 'boot', boot }),
    },
  );
  parentPort?.on('message', (message: ToStore) => {
    if (message.kind === 'requests') take(rows, message.message);
    else void close(rows);
  });
  post({ kind: 'open', installId: rows.engine.installId, now: rows.engine.now(), health: rows.engine.health() });
} catch (error) {
  post({ kind: 'refused', message: error instanceof Error ? error.message : String(error) });
}
