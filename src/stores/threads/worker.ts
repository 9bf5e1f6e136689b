import { workerData } from 'node:worker_threads';
import { StoreUnavailable } from '../../effects/store.ts';
import { keepKey, type Program, type ProgramKeys, type ReadOperation, type ReadProgram } from '../open-rows.ts';
import { loadDriver } from '../embedded/driver.ts';
import { startEngine } from '../embedded/engine.ts';
import { openReads } from '../embedded/read-side.ts';
import type { ThreadData } from './channel.ts';
import { asking, type Handlers, type Reading } from './operations.ts';
import { post, serve } from './serve.ts';

/** A thread that writes, one that reads for people, or one with a store on Redis: messages with requests and replies. */

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
  } else if (data.kind === 'redis') {
    const { serveRedisRows } = await import('../redis/rows/served.ts');
    await serveRedisRows(data);
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
  const isUnfit = data.kind === 'redis' && !(error instanceof StoreUnavailable);
  post({ kind: 'refused', message: error instanceof Error ? error.message : String(error), isUnfit });
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
