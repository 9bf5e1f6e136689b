import { StoreUnavailable } from '../../effects/store.ts';
import type { RedisConnection } from './connection.ts';
import { metaKey } from './names.ts';
import { noteOf, script } from './scripts.ts';

export type Durability =
  /** A crash of the gateway. */
  | 'local'
  /** The loss of the primary, if a replica that had confirmed takes over. */
  | 'replica'
  /** A crash and a loss of power of the server. */
  | 'fsync';

export type BarrierMode = 'none' | 'wait' | 'waitaof';

/** How long replicas or the disk may take to confirm, ms. */
const CONFIRM_MS = 900;

/** The longest time that the barrier's connection waits for an answer, ms; more than {@link CONFIRM_MS}. */
export const BARRIER_ANSWER_MS = 1500;

/** How often the number of replicas is read, ms. */
const COUNT_EVERY_MS = 1000;

/** After a round without a confirmation, the next one starts this much later, even if nobody waits for it, ms. */
const TRY_AGAIN_MS = 100;

/** Answers to a mark that come from the primary on which the step ran. */
const SAME_PRIMARY = ['late', 'new_epoch', 'waiting', 'unregistered'];

interface Waiter {
  readonly workspace: string;
  readonly epoch: string;
  done(error: StoreUnavailable | null): void;
}

/**
 * Waits until earlier writes to a primary are as durable as requested, on a connection of its own. WAIT only looks at the
 * last write of its connection. So each round first writes a mark, which comes after the steps that it stands for. The
 * mark is refused under another history or epoch. One round runs at a time; what arrives meanwhile shares the next one.
 */
export class Barrier {
  readonly #connection;
  readonly #mode;
  readonly #gateway;
  readonly #clock;
  #waiting: Waiter[] = [];
  #running = false;
  #history = '';
  #replicas = 1;
  #countedAt = -COUNT_EVERY_MS;
  #fault: StoreUnavailable | null = null;
  #again: NodeJS.Timeout | null = null;
  #closed = false;

  constructor(
    connection: Pick<RedisConnection, 'ready' | 'command' | 'pipeline' | 'reset'>,
    mode: () => BarrierMode,
    gateway: string,
    clock: () => string,
  ) {
    this.#connection = connection;
    this.#mode = mode;
    this.#gateway = gateway;
    this.#clock = clock;
  }

  /** Calls `done` when it is confirmed, is not confirmed in time, or the primary is not the one of the step. */
  afterwards(workspace: string, epoch: string, done: (error: StoreUnavailable | null) => void): void {
    if (this.#mode() === 'none') done(null);
    else this.#afterwards(workspace, epoch, done);
  }

  /** The same for who awaits it. @throws StoreUnavailable */
  wait(workspace: string, epoch: string): Promise<void> {
    return this.#mode() === 'none' ? Promise.resolve() : this.#wait(workspace, epoch);
  }

  /** Why nothing is confirmed at present, or `null`. Rounds continue until something is confirmed. */
  fault(): StoreUnavailable | null {
    return this.#fault;
  }

  close(): void {
    this.#closed = true;
    if (this.#again !== null) clearTimeout(this.#again);
  }

  /**
   * All replicas that were in sync under this history count: one that has stopped answering may still be elected. A
   * replica in its first sync does not count yet: it confirms nothing, and writes would wait for it. One that has gone to
   * another primary of the cluster (replica migration) counts no more.
   */
  async #countReplicas(): Promise<void> {
    if (performance.now() - this.#countedAt < COUNT_EVERY_MS) return;
    const info = String(await this.#connection.command('INFO', 'replication', 'cluster'));
    const rid = infoField(info, 'master_replid');
    const seen = [...info.matchAll(/^slave\d+:.*state=online/gm)].length;
    const before = rid === this.#history ? this.#replicas : 1;
    const isOfCluster = infoField(info, 'cluster_enabled') === '1';
    this.#replicas = Math.max(1, seen, seen < before && isOfCluster ? Math.min(before, await this.#known()) : before);
    this.#history = rid;
    this.#countedAt = performance.now();
  }

  /** Replicas of this primary that the cluster knows, also those that have failed. Infinity where it may not be asked. */
  async #known(): Promise<number> {
    const nodes = String(await this.#connection.command('CLUSTER', 'NODES').catch(() => ''));
    const id = /^(\w+) .*myself/m.exec(nodes)?.[1];
    return id === undefined ? Infinity : nodes.split(` ${id} `).length - 1;
  }

  async #round(group: readonly Waiter[]): Promise<void> {
    const marked = new Map(group.map(({ workspace, epoch }) => [workspace, epoch]));
    await this.#connection.ready(CONFIRM_MS);
    if (this.#mode() === 'wait') await this.#countReplicas();
    const { sha, source } = script('note');
    const marks = [...marked].map(
      ([workspace, epoch]) =>
        ['EVALSHA', sha, 1, metaKey(workspace), epoch, this.#gateway, this.#clock(), ...noteOf()] as const,
    );
    const send = async (): Promise<readonly unknown[]> => {
      if (this.#mode() === 'wait') return this.#connection.pipeline([...marks, ['WAIT', this.#replicas, CONFIRM_MS]]);
      // WAITAOF is not sent together with the marks. Before they are synced, the server would answer it from its timer:
      // 100 ms later.
      const replies = await this.#connection.pipeline(marks);
      return [...replies, await this.#connection.command('WAITAOF', 1, 0, CONFIRM_MS)];
    };
    const replies = await send().catch(async (error: unknown) => {
      if (!(error instanceof StoreUnavailable) || !error.message.includes('NOSCRIPT')) throw error;
      await this.#connection.command('SCRIPT', 'LOAD', source);
      return send();
    });
    const refused = replies.slice(0, -1).map((reply) => (Array.isArray(reply) ? String(reply[0]) : ''));
    const other = refused.find((tag) => tag !== 'ok');
    if (other !== undefined) {
      // This connection may have got to another primary than that of the steps.
      if (!SAME_PRIMARY.includes(other)) this.#connection.reset();
      throw new PrimaryChanged('Redis: the primary has changed before the step was durable');
    }
    const confirmed = replies.at(-1);
    if (this.#mode() === 'wait' && Number(confirmed) < this.#replicas) {
      this.#countedAt = -COUNT_EVERY_MS;
      throw new StoreUnavailable(
        `Redis: ${String(confirmed)} of ${this.#replicas} replicas confirmed in ${CONFIRM_MS} ms`,
      );
    }
    if (this.#mode() === 'waitaof' && !(Array.isArray(confirmed) && Number(confirmed[0]) >= 1)) {
      throw new StoreUnavailable(`Redis: the append-only file was not synced in ${CONFIRM_MS} ms`);
    }
  }

  async #rounds(): Promise<void> {
    this.#running = true;
    while (this.#waiting.length > 0) {
      const group = this.#waiting;
      this.#waiting = [];
      let failed: StoreUnavailable | null = null;
      try {
        await this.#round(group);
      } catch (error) {
        failed =
          error instanceof StoreUnavailable ? error : new StoreUnavailable('Redis: not durable', { cause: error });
      }
      // The steps themselves notice a change of the primary.
      this.#fault = failed instanceof PrimaryChanged ? null : failed;
      for (const { done } of group) done(failed);
      const [first] = group;
      if (this.#fault !== null && first !== undefined) this.#tryAgain(first.workspace);
    }
    this.#running = false;
  }

  /** Nothing is admitted until a round is confirmed, so rounds continue without calls. */
  #tryAgain(workspace: string): void {
    if (this.#closed || this.#again !== null) return;
    this.#again = setTimeout(() => {
      this.#again = null;
      void this.#retry(workspace);
    }, TRY_AGAIN_MS);
    this.#again.unref();
  }

  async #retry(workspace: string): Promise<void> {
    try {
      const epoch = await this.#connection.command('HGET', metaKey(workspace), 'epoch');
      await this.#wait(workspace, String(epoch));
    } catch {
      // Whatever it was: nothing is admitted until a round is confirmed.
      if (this.#fault !== null) this.#tryAgain(workspace);
    }
  }

  #afterwards(workspace: string, epoch: string, done: Waiter['done']): void {
    this.#waiting.push({ workspace, epoch, done });
    if (!this.#running) void this.#rounds();
  }

  #wait(workspace: string, epoch: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#afterwards(workspace, epoch, (error) => {
        if (error === null) resolve();
        else reject(error);
      });
    });
  }
}

/** The mark met another history or epoch than that of the steps. */
class PrimaryChanged extends StoreUnavailable {}

/**
 * Checks a server's settings.
 * @param atFirstStart whether the store is opened for the first time. Only then, faults that may go away without help
 *   are errors
 * @returns how the server provides the requested durability
 * @throws Error that says which setting is wrong, StoreUnavailable when the server cannot be asked
 */
export async function checkServer(
  connection: Pick<RedisConnection, 'command'>,
  durability: Durability,
  weak: boolean,
  atFirstStart: boolean,
): Promise<BarrierMode> {
  const info = String(await connection.command('INFO'));
  const read = (name: string): string => infoField(info, name);
  if (read('role') !== 'master') throw new StoreUnavailable(`Redis: the server is a ${read('role')}, not a primary`);
  const [major = 0] = read('redis_version').split('.').map(Number);
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
      if (atFirstStart && Number(read('connected_slaves')) === 0) {
        throw new Error(
          'durability replica needs a replica, and the primary has none: add one, or choose durability fsync',
        );
      }
      return 'wait';
    case 'fsync': {
      const sync = await appendfsync(connection);
      if (sync === 'always') return 'none';
      const cannot = `durability fsync cannot be had: appendfsync is ${sync}`;
      const instead = 'Set appendfsync always, or choose another durability';
      // Each call would wait for the server's next second twice, each time after everybody else's. That would miss the
      // time to dispatch.
      if (sync !== 'unknown') throw new Error(`${cannot}. ${instead}`);
      const fault = waitaofFault(info);
      if (fault === null) return 'waitaof';
      throw new Error(`${cannot}, and ${fault}. ${instead}`);
    }
  }
}

/**
 * Why a server's `WAITAOF` cannot be relied on, or `null`. Redis 7.4.0 to 7.4.2, the previews of 8.0, and Valkey since
 * 8.0 confirm under `appendfsync everysec` what is not on the disk yet (redis/redis#13793; for Valkey it is not known
 * which version fixes it).
 * @param info the text of `INFO`
 */
export function waitaofFault(info: string): string | null {
  const valkey = infoField(info, 'valkey_version');
  const [major = 0, minor = 0, patch = 0] = infoField(info, 'redis_version').split('.').map(Number);
  if (valkey !== '') {
    return Number(valkey.split('.')[0]) < 8 ? null : `WAITAOF of Valkey ${valkey} may confirm what is not on the disk`;
  }
  if (major < 7 || (major === 7 && minor < 2)) return `Redis ${infoField(info, 'redis_version')} has no WAITAOF (7.2)`;
  return major === 7 && (minor > 4 || (minor === 4 && patch <= 2))
    ? `WAITAOF of Redis ${infoField(info, 'redis_version')} confirms what is not on the disk (mended in 7.4.3 and 8.0)`
    : null;
}

/** A field of `INFO`; empty if it is absent. */
function infoField(info: string, name: string): string {
  return new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? '';
}

async function appendfsync(connection: Pick<RedisConnection, 'command'>): Promise<string> {
  try {
    const reply = await connection.command('CONFIG', 'GET', 'appendfsync');
    return Array.isArray(reply) ? String(reply[1]) : 'unknown';
  } catch {
    // Some services forbid CONFIG. What cannot be seen is not relied on.
    return 'unknown';
  }
}
