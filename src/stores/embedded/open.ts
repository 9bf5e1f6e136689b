import { availableParallelism } from 'node:os';
import { StoreUnavailable } from '../../effects/store.ts';
import type { OpenRows, Program } from '../open-rows.ts';
import type { SumListed, Watched } from '../port.ts';
import { MAX_CLOCK_JUMP_MS } from '../clock-jump.ts';
import { endedBefore } from './ended.ts';
import { type ReadSide, readInThisThread, readInOwnThread } from './read-side.ts';
import type { Ask, ReadOperations } from './threads/operations.ts';
import { threadEntry } from './threads/thread.ts';
import { isShut, writeHere, type WriterListener, writeInThread } from './writer.ts';

/** Counters of one look: transactions wait for it. */
const COUNTERS_AT_ONCE = 100;

export interface EmbeddedRowsOptions {
  /** Folder of the store; created where it is absent. */
  readonly path: string;
  /** How long to wait for another gateway to release the store, ms. */
  readonly lockWaitMs: number;
  /** How far the machine's clock may be ahead of the known time, ms; default 7 days. */
  readonly maxClockJumpMs?: number;
  /** `auto`: in two threads, one writes and one reads for people, if the machine has two cores or more. */
  readonly worker: 'auto' | 'never';
  /** Replaces the machine's clock, ms since the epoch; for tests. Keeps the store in this thread. */
  readonly clock?: () => number;
  /** What runs where the file is, and the module from which a thread imports it as `program`. */
  readonly program?: { readonly run: Program; readonly module: URL };
}

/**
 * Opens the store in a folder on this machine: SQLite, one gateway at a time. A store that is older than the mark
 * beside it says opens, but is not ready (`store_rolled_back`) and rejects every operation.
 * @throws StoreUnavailable when another gateway holds the store, or its file is damaged or of another format
 */
export async function openEmbeddedRows(options: EmbeddedRowsOptions): Promise<OpenRows> {
  const { path, lockWaitMs, clock = null, maxClockJumpMs = MAX_CLOCK_JUMP_MS, program = null } = options;
  const entry = options.worker === 'auto' && clock === null && availableParallelism() >= 2 ? threadEntry() : null;
  const watchers: Watcher[] = [];
  let looker: ReadSide | null = null;
  const sendWatched = (kinds: readonly string[]): void => void ask('watch', kinds).catch(() => {});
  const listener: WriterListener = {
    onChanged(changes) {
      if (changes === null) sendWatched(watchers.flatMap(({ kinds }) => kinds));
      notify(watchers, changes);
    },
    onShut: () => looker?.letGo(),
  };
  const {
    installId,
    now,
    health,
    boot,
    ask,
    program: askProgram,
    close,
  } = entry === null
    ? await writeHere({ path, lockWaitMs, maxClockJumpMs, clock, program: program?.run ?? null }, listener)
    : await writeInThread(entry, { path, lockWaitMs, maxClockJumpMs, program: program?.module.href ?? null }, listener);
  const readSide = entry === null ? await readInThisThread(path) : readInOwnThread(entry, path);
  looker = readSide;

  let reads = 0;
  let allSeen = (): void => {};

  /** A look may have seen what is not on the disk yet. So its answer waits until that is there. */
  const askReader: Ask<ReadOperations> = async (op, query) => {
    const of = health();
    if (isShut(of)) throw new StoreUnavailable(of.problem?.message ?? '');
    reads += 1;
    try {
      const seen = await readSide.ask(op, query);
      await ask('settled', null);
      return seen;
    } finally {
      reads -= 1;
      if (reads === 0) allSeen();
    }
  };

  return {
    installId,
    now,
    health,
    ended: endedBefore(boot),
    impediment() {
      const { problem } = health();
      return problem?.code === 'clock_ahead' ? new StoreUnavailable(problem.message) : null;
    },
    async close() {
      // Whoever closes the file last moves its journal into it. The writer does that in order.
      await readSide.close();
      // What was seen has still to settle there.
      if (reads > 0) await new Promise<void>((resolve) => (allSeen = resolve));
      await close();
    },
    ...(program === null ? {} : { program: askProgram }),
    commit: (change) => ask('commit', change),
    read: (workspace, wants, sums) => ask('read', { workspace, wants, sums }),
    list: (query) => askReader('list', query),
    ledger: (query) => askReader('ledger', query),
    async sums(workspace, limit) {
      const found: SumListed[] = [];
      for (;;) {
        const after = found.at(-1)?.name ?? null;
        const most = Math.min(COUNTERS_AT_ONCE, limit - found.length);
        const sums = await ask('sums', { workspace, after, limit: most });
        found.push(...sums);
        if (sums.length < COUNTERS_AT_ONCE) return found;
      }
    },
    prune: (workspace, limit) => ask('prune', { workspace, limit }),
    watch(kinds, listener) {
      watchers.push({ kinds, listener });
      // If the store is away, listeners are told that anything may have changed when it is back.
      sendWatched(kinds);
    },
  };
}

interface Watcher {
  readonly kinds: readonly string[];
  readonly listener: (changed: Watched) => void;
}

function notify(watchers: readonly Watcher[], changes: readonly Watched[] | null): void {
  for (const { kinds, listener } of watchers) {
    if (changes === null) for (const kind of kinds) listener({ workspace: null, kind, id: null });
    for (const changed of changes ?? []) if (kinds.includes(changed.kind)) listener(changed);
  }
}
