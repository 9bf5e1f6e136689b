import { parentPort, workerData } from 'node:worker_threads';
import { StoreUnavailable } from '../../effects/store.ts';
import {
  type CallMessage,
  decodeCalls,
  MESSAGE_REPLIES,
  type ReplyMessage,
  type StoreThreadData,
  type ToGateway,
  type ToStore,
} from './channel.ts';
import type { ExpectedText } from './effects-table.ts';
import { type Engine, startEngine } from './engine.ts';
import { type OperationName, runOperation } from './operations.ts';
import { seenByAdmission, seenBySettlement } from './repeat.ts';
import type { Session } from './session.ts';

/** The thread of the store: the engine, and batches of operations and answers over the port. */

const { path, lockWaitMs, maxClockJumpMs }: StoreThreadData = workerData;
let replies: string[] = [];

function post(message: ToGateway): void {
  parentPort?.postMessage(JSON.stringify(message));
}

function postReplies(engine: Engine): void {
  const now = engine.now();
  for (let at = 0; at < replies.length; at += MESSAGE_REPLIES) {
    const batch = replies.slice(at, at + MESSAGE_REPLIES);
    parentPort?.postMessage(`{"kind":"replies","now":${now},"replies":[${batch.join(',')}]}`);
  }
  replies = [];
}

function submit(engine: Engine, message: CallMessage, text: ExpectedText | null): void {
  const id = message[0];
  let reply = '';
  engine.submit({
    run(session) {
      session.effects.expect(text);
      reply = JSON.stringify(answer(session, message));
    },
    done() {
      replies.push(reply);
    },
    failed(error) {
      const kind = error instanceof StoreUnavailable ? 'unavailable' : 'fault';
      replies.push(JSON.stringify([id, kind, error.message]));
    },
  });
}

function answer(session: Session, message: CallMessage): ReplyMessage {
  const [id, name, request, attempt] = message;
  if (name === 'admit') {
    const reply = runOperation(session, name, request);
    const seen = seenByAdmission(request, reply);
    return seen === null ? [id, 'reply', reply] : [id, 'admitted', ...seen];
  }
  if (name === 'settle' && attempt > 0) {
    const reply = runOperation(session, name, request);
    const at = reply.kind === 'settled' && reply.effect.attempt === attempt ? seenBySettlement(request, reply) : null;
    return at === null ? [id, 'reply', reply] : [id, 'settled', at];
  }
  return [id, 'reply', run(session, message)];
}

function run<Name extends OperationName>(session: Session, [, name, request]: CallMessage<Name>): unknown {
  return runOperation(session, name, request);
}

function serve(engine: Engine): void {
  parentPort?.on('message', (message: ToStore) => {
    if (message === null) {
      void close(engine);
      return;
    }
    decodeCalls(message, (operation, text) => submit(engine, operation, text));
  });
}

async function close(engine: Engine): Promise<void> {
  await engine.close();
  postReplies(engine);
  post({ kind: 'closed' });
  // The end of a thread ends its connections; one that could not be synced is to stay as it is until the process ends.
  if (engine.health().problem?.code !== 'store_sync_failed') parentPort?.close();
}

try {
  const engine: Engine = await startEngine(
    { path, lockWaitMs, maxClockJumpMs, clock: null },
    {
      onHealth: (health) => post({ kind: 'health', health }),
      onKeysChanged: (handles) => post({ kind: 'keys', handles }),
      onPausesChanged: (workspace) => post({ kind: 'pauses', workspace }),
      onBatch: () => postReplies(engine),
    },
  );
  serve(engine);
  post({ kind: 'open', installId: engine.installId, now: engine.now(), health: engine.health() });
} catch (error) {
  post({ kind: 'refused', message: error instanceof Error ? error.message : String(error) });
}
