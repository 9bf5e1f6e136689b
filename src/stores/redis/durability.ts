import { StoreUnavailable } from '../../effects/store.ts';
import type { RedisConnection } from './connection.ts';
import { metaKey } from './names.ts';
import { script } from './scripts.ts';

/** What an acknowledged step survives. */
export type Durability =
  /** A crash of the gateway. */
  | 'local'
  /** The loss of the primary, as long as a replica that had confirmed takes over. */
  | 'replica'
  /** A crash and a loss of power of the server. */
  | 'fsync';

/** How a server gives the durability asked for. */
export type BarrierMode = 'none' | 'wait' | 'waitaof';

/** How long replicas or the disk may take to confirm, ms. */
const CONFIRM_MS = 900;

/** The longest that a barrier's connection waits for an answer, ms; more than {@link CONFIRM_MS}. */
export const BARRIER_ANSWER_MS = 1500;

/** Number of replicas is looked at this often, ms. */
const COUNT_EVERY_MS = 1000;

interface Waiter {
  readonly workspace: string;
  readonly epoch: string;
  done(error: StoreUnavailable | null): void;
}

/** Waits until what was written to one primary before is as durable as asked for. */
export interface Barrier {
  /** @throws StoreUnavailable when it is not confirmed in time, or the primary is another than the step's */
  wait(workspace: string, epoch: string): Promise<void>;
}

/**
 * A barrier on a connection of its own: WAIT looks only at the last write of its own connection, so each round first
 * writes a mark, which comes after the steps it stands for; the mark is refused under another history or epoch. One
 * round at a time; what arrives meanwhile shares the next.
 */
export function createBarrier(
  connection: RedisConnection,
  mode: () => BarrierMode,
  gateway: string,
  clock: () => string,
): Barrier {
  let waiting: Waiter[] = [];
  let running = false;
  let history = '';
  let replicas = 1;
  let countedAt = -COUNT_EVERY_MS;

  /** All replicas seen under this history count: one that has stopped answering may still be elected. */
  async function countReplicas(): Promise<void> {
    if (performance.now() - countedAt < COUNT_EVERY_MS) return;
    const info = String(await connection.command('INFO', 'replication'));
    const rid = /master_replid:(\w+)/.exec(info)?.[1] ?? '';
    const seen = Number(/connected_slaves:(\d+)/.exec(info)?.[1] ?? 0);
    replicas = Math.max(1, seen, rid === history ? replicas : 1);
    history = rid;
    countedAt = performance.now();
  }

  async function round(group: readonly Waiter[]): Promise<void> {
    const marked = new Map(group.map(({ workspace, epoch }) => [workspace, epoch]));
    if (mode() === 'wait') await countReplicas();
    const { sha, source } = script('mark');
    const wait: readonly [string, ...number[]] =
      mode() === 'wait' ? ['WAIT', replicas, CONFIRM_MS] : ['WAITAOF', 1, 0, CONFIRM_MS];
    const send = (evaluate: 'EVALSHA' | 'EVAL'): Promise<readonly unknown[]> =>
      connection.pipeline([
        ...[...marked].map(
          ([workspace, epoch]) =>
            [evaluate, evaluate === 'EVAL' ? source : sha, 1, metaKey(workspace), epoch, gateway, clock()] as const,
        ),
        wait,
      ]);
    let replies: readonly unknown[];
    try {
      replies = await send('EVALSHA');
    } catch (error) {
      if (!(error instanceof StoreUnavailable) || !error.message.includes('NOSCRIPT')) throw error;
      replies = await send('EVAL');
    }
    for (const reply of replies.slice(0, -1)) {
      if (!Array.isArray(reply) || reply[0] !== 'marked') {
        throw new StoreUnavailable('Redis: the primary has changed before the step was durable');
      }
    }
    const confirmed = replies.at(-1);
    if (mode() === 'wait' && Number(confirmed) < replicas) {
      countedAt = -COUNT_EVERY_MS;
      throw new StoreUnavailable(`Redis: ${String(confirmed)} of ${replicas} replicas confirmed in ${CONFIRM_MS} ms`);
    }
    if (mode() === 'waitaof' && !(Array.isArray(confirmed) && Number(confirmed[0]) >= 1)) {
      throw new StoreUnavailable(`Redis: the append-only file was not synced in ${CONFIRM_MS} ms`);
    }
  }

  async function rounds(): Promise<void> {
    running = true;
    while (waiting.length > 0) {
      const group = waiting;
      waiting = [];
      let failed: StoreUnavailable | null = null;
      try {
        await round(group);
      } catch (error) {
        failed =
          error instanceof StoreUnavailable ? error : new StoreUnavailable('Redis: not durable', { cause: error });
      }
      for (const { done } of group) done(failed);
    }
    running = false;
  }

  return {
    wait(workspace, epoch) {
      if (mode() === 'none') return Promise.resolve();
      return new Promise((resolve, reject) => {
        const join = (retry: boolean): void => {
          waiting.push({
            workspace,
            epoch,
            done(error) {
              if (error === null) resolve();
              else reject(error);
            },
          });
          if (!running && retry) void rounds();
        };
        join(true);
      });
    },
  };
}

/**
 * Looks at a server's settings.
 * @param atStart whether the store is being opened: what may come back by itself is refused only then
 * @returns how it gives the durability asked for
 * @throws Error saying which setting is wrong, StoreUnavailable when it cannot be asked
 */
export async function checkServer(
  connection: RedisConnection,
  durability: Durability,
  weak: boolean,
  atStart: boolean,
): Promise<BarrierMode> {
  const info = String(await connection.command('INFO'));
  const read = (name: string): string => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? '';
  if (read('role') !== 'master') throw new StoreUnavailable(`Redis: the server is a ${read('role')}, not a primary`);
  const [major = 0, minor = 0] = read('redis_version').split('.').map(Number);
  if (major < 7) throw new Error(`Redis ${read('redis_version')} is too old: 7.0 or later is needed`);
  const policy = read('maxmemory_policy');
  if (policy !== 'noeviction') {
    throw new Error(
      `Redis evicts keys (maxmemory-policy ${policy}): set maxmemory-policy noeviction, or effects are forgotten and run again`,
    );
  }
  if (read('aof_enabled') !== '1' && !(weak && durability === 'local')) {
    throw new Error(
      'Redis keeps no append-only file: set appendonly yes, or what was admitted is forgotten at a restart',
    );
  }
  switch (durability) {
    case 'local':
      if (!weak)
        throw new Error('durability local can lose acknowledged steps: set allow_weak_durability: true to accept that');
      return 'none';
    case 'replica':
      // After a fail-over replicas come back one by one; until then nothing is confirmed.
      if (atStart && Number(read('connected_slaves')) === 0 && !weak) {
        throw new Error(
          'durability replica needs a replica, and the primary has none: add one, or choose durability fsync',
        );
      }
      return 'wait';
    case 'fsync': {
      const sync = await appendfsync(connection);
      if (sync === 'always') return 'none';
      if (major > 7 || (major === 7 && minor >= 2)) return 'waitaof';
      throw new Error(
        `durability fsync cannot be had: appendfsync is ${sync} and Redis ${read('redis_version')} has no WAITAOF (7.2). Set appendfsync always, or choose another durability`,
      );
    }
  }
}

async function appendfsync(connection: RedisConnection): Promise<string> {
  try {
    const reply = await connection.command('CONFIG', 'GET', 'appendfsync');
    return Array.isArray(reply) ? String(reply[1]) : 'unknown';
  } catch {
    // Services that forbid CONFIG: what cannot be seen is not relied on.
    return 'unknown';
  }
}
