import { workerData } from 'node:worker_threads';
import { startEngine } from '../engine.ts';
import type { WriterData } from './channel.ts';
import { post, serve } from './serve.ts';

/** The thread that writes: the engine, and messages with requests and replies. */

const data: WriterData = workerData;

try {
  const engine = await startEngine(
    { ...data, clock: null, isOwnThread: true },
    {
      onHealth: (health) => post({ kind: 'health', health }),
      onTold: (told) => post({ kind: 'told', told }),
      onBoot: (boot) => post({ kind: 'boot', boot }),
    },
  );
  serve(engine.handlers, {
    now: engine.now,
    letGo() {},
    async close() {
      await engine.close();
      // When a thread ends, its connections are closed. One that could not be synced must stay open until the process
      // ends.
      return engine.health().problem?.code !== 'store_sync_failed';
    },
  });
  post({ kind: 'open', installId: engine.installId, now: engine.now(), health: engine.health() });
} catch (error) {
  post({ kind: 'refused', message: error instanceof Error ? error.message : String(error) });
}
