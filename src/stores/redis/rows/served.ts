import { type FleetProgram, keepKey, type ProgramKeys } from '../../open-rows.ts';
import type { FleetNews, FleetState, RedisThread } from '../../threads/channel.ts';
import type { Handlers, OnRedis } from '../../threads/operations.ts';
import { post, serve } from '../../threads/serve.ts';
import { openRedisRows, type RedisRows } from './open.ts';

/** How often the gateway is told how the store is, if that has changed, ms. */
const STATE_MS = 100;

/**
 * Opens a store on Redis in this thread, for the gateway in another one, and runs the rules' steps on it.
 * @throws Error for settings of the servers that cannot be used, StoreUnavailable if they cannot be reached
 */
export async function serveRedisRows({ rows: options, maxFreezeMs, program: module }: RedisThread): Promise<void> {
  const loaded: { readonly loadFleetProgram: () => Promise<FleetProgram> } = await import(module);
  const { operatorEvent, run } = await loaded.loadFleetProgram();
  let postReplies = (): void => {};
  function tell(news: FleetNews): void {
    postReplies();
    post(news);
  }
  const rows = await openRedisRows({
    ...options,
    operatorEvent,
    onEnded: (workspace, count, boots) => tell({ kind: 'ended', workspace, count, boots }),
  });
  const keys: ProgramKeys = new Map();
  const program = run(rows, keys, maxFreezeMs);

  let lastState = '';
  function postState(): void {
    // Of a cluster, each primary has a state of its own: admissions see it.
    const impediment = options.mode === 'cluster' ? null : (rows.impediment('')?.message ?? null);
    const { installId } = rows;
    const others = [...rows.others()];
    const state: FleetState = { installId, health: rows.health(), impediment, others, commits: program.commits() };
    const text = JSON.stringify(state);
    if (text === lastState) return;
    lastState = text;
    tell({ kind: 'fleet', state });
  }

  const posting = setInterval(postState, STATE_MS);
  postReplies = serve(
    handlersOf(rows, program.ask, postState, (changed) => tell({ kind: 'changed', changed: [changed] })),
    {
      now: rows.now,
      hold: (name, key) => keepKey(keys, name, key),
      letGo() {},
      async close() {
        clearInterval(posting);
        await program.close();
        await rows.close();
        return true;
      },
    },
  );
  postState();
  post({ kind: 'open', installId: rows.installId, now: rows.now() });
}

/**
 * @param failing called before a failure is answered
 * @param listener of what is watched
 */
function handlersOf(
  rows: RedisRows,
  ask: ReturnType<FleetProgram['run']>['ask'],
  failing: () => void,
  listener: Parameters<RedisRows['watch']>[1],
): Handlers<OnRedis> {
  /** Answers with what `run` resolves to. */
  function answered<Asked, T>(run: (asked: Asked) => Promise<T>) {
    async function answer(asked: Asked, done: (answer: T) => void, failed: (error: Error) => void): Promise<void> {
      let found: T;
      try {
        found = await run(asked);
      } catch (error) {
        failing();
        failed(error instanceof Error ? error : new Error(String(error)));
        return;
      }
      done(found);
    }
    return (...asked: Parameters<typeof answer>): void => void answer(...asked);
  }

  const watched = new Set<string>();
  return {
    program: answered(ask),
    commit: answered(rows.commit),
    read: answered(({ workspace, wants, sums, isShown }) => rows.read(workspace, wants, sums, isShown)),
    rows: answered(({ workspace, names }) => rows.rows(workspace, names)),
    list: answered(rows.list),
    ledger: answered(rows.ledger),
    sums_page: answered(({ workspace, from }) => rows.sumsPage(workspace, from)),
    prune: answered(({ workspace, limit }) => rows.prune(workspace, limit)),
    ended_known: answered((workspace) => rows.ended.known(workspace).then(() => null)),
    watch(kinds, done) {
      const others = kinds.filter((kind) => !watched.has(kind));
      for (const kind of others) watched.add(kind);
      if (others.length > 0) rows.watch(others, listener);
      done(null);
    },
    announce(digests, done) {
      rows.announce(digests);
      done(null);
    },
  };
}
