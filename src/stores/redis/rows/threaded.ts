import { StoreUnavailable } from '../../../effects/store.ts';
import { MAX_CLOCK_JUMP_MS } from '../../clock-jump.ts';
import { keepKey, type OpenProgram, type OpenRows, type ProgramKeys } from '../../open-rows.ts';
import type { FleetState, RedisThread, ToGateway } from '../../threads/channel.ts';
import type { Message } from '../../threads/operations.ts';
import { startThread, type StoreThread } from '../../threads/thread.ts';
import { notify, type Watcher } from '../../watchers.ts';
import { createStoreTime, type StoreTime } from '../store-time.ts';
import { createEndedBoots, type EndedBoots } from './ended.ts';
import type { RedisRows } from './open.ts';
import { listedSums } from './reads.ts';

/** A store on Redis in a thread of its own, which runs the rules' steps there. */
export interface ThreadedRows extends OpenRows, Pick<RedisRows, 'announce' | 'others'> {
  readonly program: OpenProgram;
}

/**
 * Opens the store in a thread of its own, so that steps, signatures and the client of Redis take nothing of the thread
 * that answers calls.
 * @param entry of {@link threadEntry}
 * @throws Error for settings of the servers that cannot be used, StoreUnavailable if they cannot be reached
 */
export async function openThreadedRows(entry: URL, data: Omit<RedisThread, 'kind'>): Promise<ThreadedRows> {
  const fleet = new FleetThread(data.rows.maxClockJumpMs ?? MAX_CLOCK_JUMP_MS);
  const thread = await fleet.start(entry, data);
  const keys: ProgramKeys = new Map();
  return {
    get installId() {
      return fleet.state().installId;
    },
    now: fleet.time.now,
    health: () => fleet.state().health,
    ended: fleet.ended,
    impediment() {
      const { impediment } = fleet.state();
      return impediment === null ? null : new StoreUnavailable(impediment);
    },
    program: {
      ask: (request, done, failed) => thread.send('program', request, done, failed),
      lend(name, key) {
        keepKey(keys, name, key);
        thread.deliver({ kind: 'key', name, key });
      },
      keys,
      commits: () => fleet.state().commits,
    },
    commit: (change) => thread.ask('commit', change),
    read: (workspace, wants, sums, isShown = false) => thread.ask('read', { workspace, wants, sums, isShown }),
    rows: (workspace, names) => thread.ask('rows', { workspace, names }),
    list: (query) => thread.ask('list', query),
    ledger: (query) => thread.ask('ledger', query),
    sums: (workspace, limit) =>
      listedSums((of, from) => thread.ask('sums_page', { workspace: of, from }), workspace, limit),
    prune: (workspace, limit) => thread.ask('prune', { workspace, limit }),
    watch(kinds, listener) {
      fleet.watchers.push({ kinds, listener });
      void thread.ask('watch', kinds).catch(() => {});
    },
    announce: (digests) => void thread.ask('announce', digests).catch(() => {}),
    others: () => new Map(fleet.state().others),
    close: () => fleet.close(),
  };
}

class FleetThread {
  readonly time: StoreTime;
  readonly watchers: Watcher[] = [];
  readonly ended: EndedBoots;
  #thread: StoreThread | null = null;
  #state: FleetState | null = null;
  #closed: (() => void) | null = null;

  constructor(maxClockJumpMs: number) {
    this.time = createStoreTime(undefined, maxClockJumpMs);
    this.ended = createEndedBoots(null, async (workspace) => {
      await this.#thread?.ask('ended_known', workspace);
    });
  }

  /**
   * @returns once the store is open. What the thread does not catch later is not caught here either: the gateway ends, for
   *   nobody knows what became of the last steps.
   */
  start(entry: URL, data: Omit<RedisThread, 'kind'>): Promise<StoreThread> {
    return new Promise((resolve, reject) => {
      const thread = startThread(
        entry,
        { kind: 'redis', ...data },
        (message) => {
          if (message.kind === 'refused')
            reject(message.isUnfit ? new Error(message.message) : new StoreUnavailable(message.message));
          else this.#hear(message);
          if (message.kind === 'open') resolve((this.#thread = thread));
          if (message.kind === 'closed') thread.unref();
        },
        this.time.observe,
        (why) => {
          if (this.#thread === null) reject(new StoreUnavailable(why));
          else if (this.#closed === null) throw new Error(why);
        },
      );
    });
  }

  #hear(message: Exclude<ToGateway, Message | { readonly kind: 'refused' }>): void {
    switch (message.kind) {
      case 'open':
        this.time.observe(message.now);
        return;
      case 'fleet':
        this.#state = message.state;
        return;
      case 'ended':
        this.ended.seen(message.workspace, message.count, message.boots);
        return;
      case 'changed':
        notify(this.watchers, message.changed);
        return;
      case 'closed':
        this.#closed?.();
        return;
      case 'boot':
      case 'health':
        throw new TypeError('only the thread of an embedded store has such news');
    }
  }

  /** How the store is; told before the thread says that it is open. */
  state(): FleetState {
    if (this.#state === null) throw new TypeError('the thread of the store has not told how it is');
    return this.#state;
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#closed = resolve;
      this.#thread?.deliver({ kind: 'close' });
    });
  }
}
