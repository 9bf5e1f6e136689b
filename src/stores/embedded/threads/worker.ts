import { workerData } from 'node:worker_threads';
import type { Program } from '../../open-rows.ts';
import { loadDriver } from '../driver.ts';
import { startEngine } from '../engine.ts';
import { openReads } from '../read-side.ts';
import type { ThreadData } from './channel.ts';
import { post, serve } from './serve.ts';

/** A thread that writes, or one that reads for people: messages with requests and replies. */

const data: ThreadData = workerData;

try {
  if (data.kind === 'write') {
    const loaded: { readonly program: Program } | null = data.program === null ? null : await import(data.program);
    const program = loaded?.program ?? null;
    const engine = await startEngine({ ...data, program, clock: null, isOwnThread: true }, post);
    // When a thread ends, its connections are closed. One that could not be synced must stay open until the process ends.
    serve(engine.handlers, { now: engine.now, letGo() {}, close: engine.close });
    post({ kind: 'open', installId: engine.installId, now: engine.now() });
  } else {
    const reads = openReads(data.path, await loadDriver());
    serve(reads.handlers, {
      // It has no clock: the thread that writes says what time it is.
      now: () => 0,
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
