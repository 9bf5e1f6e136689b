import { parentPort, workerData } from 'node:worker_threads';
import { StoreUnavailable } from '../../effects/store.ts';
import {
  type CallMessage,
  decodeForStore,
  encodeEffectReply,
  hasEffect,
  isAskedFor,
  MESSAGE_CALLS,
  type StoreThreadData,
  type ToGateway,
} from './channel.ts';
import { type Engine, startEngine } from './engine.ts';
import { type OperationName, runOperation } from './operations.ts';

/** The thread of the store: the engine, and batches of operations and answers over the port. */

const { path, lockWaitMs }: StoreThreadData = workerData;
let replies: string[] = [];

function post(message: ToGateway): void {
  parentPort?.postMessage(JSON.stringify(message));
}

function postReplies(engine: Engine): void {
  const now = engine.now();
  for (let at = 0; at < replies.length; at += MESSAGE_CALLS) {
    const batch = replies.slice(at, at + MESSAGE_CALLS);
    parentPort?.postMessage(`{"kind":"replies","now":${now},"replies":[${batch.join(',')}]}`);
  }
  replies = [];
}

function submit<Name extends OperationName>(engine: Engine, [id, name, request, attempt]: CallMessage<Name>): void {
  let reply = '';
  engine.submit({
    run(session) {
      const answer = runOperation(session, name, request);
      if (!hasEffect(answer)) {
        reply = JSON.stringify([id, 'reply', answer]);
        return;
      }
      const { effect } = answer;
      const known =
        attempt > 0 && attempt === effect.attempt ? 'attempt' : isAskedFor(request, effect) ? 'call' : 'nothing';
      reply = encodeEffectReply(id, answer, session.effects.documentOf(effect), known);
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

function serve(engine: Engine): void {
  parentPort?.on('message', (message: string) => {
    const calls = decodeForStore(message);
    if (calls === null) {
      engine.close();
      postReplies(engine);
      post({ kind: 'closed' });
      parentPort?.close();
      return;
    }
    for (const call of calls) submit(engine, call);
  });
}

try {
  const engine: Engine = await startEngine(
    { path, lockWaitMs, clock: null },
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
