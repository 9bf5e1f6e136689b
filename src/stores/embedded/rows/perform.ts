import type { Watched } from '../../port.ts';
import { type Engine, type EngineListener, type EngineOptions, startEngine } from '../engine.ts';
import type { Boot } from './ended.ts';
import type { Reader } from './reader.ts';
import type { Reply } from './reply.ts';
import type { Request } from './request.ts';
import { rowFormat, type RowSession } from './session.ts';

/** The engine, with a way to send it requests. */
export interface RowEngine {
  readonly engine: Engine<RowSession, Reader>;
  /** Exactly one of `done` and `failed` is called, later. */
  perform(request: Request, done: (reply: Reply) => void, failed: (error: Error) => void): void;
}

/** Opens the store in this thread. */
export async function startRowEngine(
  options: EngineOptions,
  listener: EngineListener<Watched> & { onBoot(boot: Boot): void },
): Promise<RowEngine> {
  // If the file is reopened, its new session has to know the watched kinds as well.
  const watched = new Set<string>();
  const engine = await startEngine(
    rowFormat(watched, (boot) => listener.onBoot(boot)),
    options,
    listener,
  );

  function submit(
    run: (session: RowSession) => Reply,
    done: (reply: Reply) => void,
    failed: (error: Error) => void,
  ): void {
    let reply: Reply | null = null;
    engine.submit({
      run(session) {
        reply = run(session);
      },
      done() {
        if (reply !== null) done(reply);
      },
      failed,
    });
  }

  function look(run: (reader: Reader) => Reply, done: (reply: Reply) => void, failed: (error: Error) => void): void {
    let reply: Reply | null = null;
    engine.look({
      run(reader) {
        reply = run(reader);
      },
      done() {
        if (reply !== null) done(reply);
      },
      failed,
    });
  }

  return {
    engine,
    perform(request, done, failed) {
      switch (request.op) {
        case 'commit':
          submit((session) => ({ op: 'commit', answer: session.commit(request.change) }), done, failed);
          return;
        case 'read': {
          const { workspace, wants, sums } = request;
          submit((session) => ({ op: 'read', seen: session.read(workspace, wants, sums) }), done, failed);
          return;
        }
        case 'sums': {
          const { workspace, after, limit } = request;
          submit((session) => ({ op: 'sums', sums: session.sums(workspace, after, limit) }), done, failed);
          return;
        }
        case 'prune': {
          const { workspace, limit } = request;
          submit((session) => ({ op: 'prune', pruned: session.prune(workspace, limit) }), done, failed);
          return;
        }
        case 'watch': {
          for (const kind of request.kinds) watched.add(kind);
          done({ op: 'watch' });
          return;
        }
        case 'list':
          look((reader) => ({ op: 'list', listed: reader.list(request.query) }), done, failed);
          return;
        case 'ledger':
          look((reader) => ({ op: 'ledger', entries: reader.ledger(request.query) }), done, failed);
      }
    },
  };
}
