import { randomBytes } from 'node:crypto';
import { type StoreHealth, StoreUnavailable } from '../../../effects/store.ts';
import { MAX_CLOCK_JUMP_MS } from '../../clock-jump.ts';
import { openStepJournal } from '../../journal/step-journal.ts';
import type { OpenRows, OperatorEvent } from '../../open-rows.ts';
import type { Answer } from '../../port.ts';
import { accessOf, clusterNodes, targetOf, type RedisServers } from '../addresses.ts';
import { createAnnouncements, type InForceDigests } from '../announcements.ts';
import { Calls } from '../calls.ts';
import { openConnection, textsOf } from '../connection.ts';
import { createFleet, type FleetSettings } from '../fleet.ts';
import { keyOf, metaKey } from '../names.ts';
import { unstored } from './names.ts';
import type { Durability } from '../durability.ts';
import { noteOf } from '../scripts.ts';
import { createStoreTime } from '../store-time.ts';
import { openCluster, openSinglePrimary, type Topology, type TopologySettings } from '../topology.ts';
import { Batches } from './batches.ts';
import { createEndedBoots } from './ended.ts';
import { Notices } from './notices.ts';
import { createReads, listedSums, type PageOfSums } from './reads.ts';

export interface RedisRowsOptions extends RedisServers {
  readonly durability: Durability;
  readonly allowWeakDurability: boolean;
  /** A folder beside the gateway for its own journal, kept over restarts. */
  readonly journalFolder: string;
  /** Name of this gateway among those that share the store; the same after a restart. */
  readonly gatewayId: string;
  /**
   * The acknowledged steps that a fail-over may lose span at most this, ms. If they span more, the store was set back.
   */
  readonly maxReplayMs?: number;
  /**
   * Opens even if the servers cannot be reached: everything rejects until they can. Unfit settings are still refused.
   */
  readonly openUnreached?: boolean;
  /** How far a server's clock may be ahead of the known time, ms; default 7 days. */
  readonly maxClockJumpMs?: number;
  /** A trusted clock that replaces the server's, ms since the epoch; for tests. */
  readonly clock?: () => number;
  /** The ledger's text for the decision of an operator. */
  readonly operatorEvent: OperatorEvent;
  /** Called with the boots that have ended in a workspace, and how many that are, whenever that was read. */
  readonly onEnded?: (workspace: string, count: string, boots: readonly string[]) => void;
}

/** A store of rows on Redis, with functions that only operators of several gateways need. */
export interface RedisRows extends OpenRows {
  /** Workspaces that are not empty. */
  workspaces(): Promise<readonly string[]>;
  readonly sumsPage: PageOfSums;
  /** Declares that a gateway's journal is lost: writes no longer wait for it. */
  recoverLost(gateway: string): Promise<void>;
  /**
   * Continues in a new epoch with a store that was emptied or set back.
   * @returns gateways whose journals are awaited
   */
  acceptLoss(): Promise<readonly string[]>;
  /**
   * An operator says that the servers' clocks are right, however far they are ahead of the known time.
   * @returns `null` if the servers' clocks are trusted already; else the time before and the one trusted now, ms
   */
  acceptTime(): Promise<{ readonly before: number; readonly time: number } | null>;
  /** Tells the other gateways what is in force here. Call it once the policies have been activated. */
  announce(digests: InForceDigests): void;
  /** What the other gateways have in force, by name. */
  others(): ReadonlyMap<string, InForceDigests>;
}

const REPLAY_MS = 10_000;

/** How often the store is checked after a failure, ms. */
const PROBE_MS = 500;

/** A server's clock that is ahead of the known time by less than this is right: a gateway counts no finer, ms. */
const RIGHT_MS = 1000;

/** A look at the store older than this is not trusted, ms. */
const VIEW_MS = 2000;

/**
 * Opens the store. It tries to connect as long as it is open. While it cannot, everything rejects at once.
 * @throws Error for settings of the servers that cannot be used, StoreUnavailable if they cannot be reached
 */
export async function openRedisRows(options: RedisRowsOptions): Promise<RedisRows> {
  const { gatewayId } = options;
  const boot = randomBytes(9).toString('base64url');
  const time = createStoreTime(options.clock, options.maxClockJumpMs ?? MAX_CLOCK_JUMP_MS);
  let failure: StoreUnavailable | null = null;
  let stepFailure: StoreUnavailable | null = null;

  const access = accessOf(options.url);
  let opening = true;
  const journal = await openStepJournal(options.journalFolder);
  // A gateway that has worked here before waits for what may come back without help. At a first start, the settings are
  // wrong.
  const isRestart = journal.memory !== null;
  const settings: TopologySettings = {
    access,
    durability: options.durability,
    allowWeakDurability: options.allowWeakDurability,
    gatewayId,
    clock: time.argument,
    atFirstStart: () => opening && !isRestart,
  };
  const target = targetOf(options);
  const topology: Topology =
    options.mode === 'cluster' ? openCluster(clusterNodes(options), settings) : openSinglePrimary(target, settings);
  const subscriber = openConnection(target, access, { name: `svc:${gatewayId}:changes`, answerMs: 3000 });
  async function abandon(): Promise<void> {
    topology.close();
    subscriber.close();
    await journal.close();
  }
  try {
    await topology.ready();
    opening = false;
  } catch (error) {
    if (!(options.openUnreached === true && error instanceof StoreUnavailable)) {
      await abandon();
      throw error;
    }
    failure = error;
  }

  const endedSeen: FleetSettings['onEnded'] = (workspace, count, boots) => {
    ended.seen(workspace, count, boots);
    options.onEnded?.(workspace, count, boots);
  };
  const parts: FleetSettings = {
    topology,
    journal,
    gatewayId,
    boot,
    time,
    maxReplayMs: options.maxReplayMs ?? REPLAY_MS,
    operatorEvent: options.operatorEvent,
    onEnded: endedSeen,
  };
  const fleet = createFleet(parts);
  const calls = new Calls(parts, fleet, (error) => {
    failure = error;
  });
  /** If the workspace is in the store, attaching to it tells which boots have ended. */
  async function findEnded(workspace: string): Promise<void> {
    try {
      const [there] = await calls.commands(workspace, [['EXISTS', metaKey(workspace)]]);
      if (Number(there) === 1) await fleet.attach(workspace);
    } catch (error) {
      ignoreUnavailable(error);
    }
  }
  const ended = createEndedBoots(boot, findEnded);
  const report = (error: StoreUnavailable): void => {
    stepFailure = error;
  };
  const batches = new Batches(parts, calls, 64, report);
  const readBatches = new Batches(parts, calls, 16, report);
  const reads = createReads({ calls, topology, readBatches });
  const announcements = createAnnouncements(calls, fleet, gatewayId);

  /**
   * After a failed step, checks whether steps would succeed again. A small write that succeeds does not prove it, so
   * the check of the journal writes more bytes than a step takes.
   */
  async function probe(): Promise<void> {
    await calls.evaluate('note', '', noteOf());
    await topology.primaryOf('').barrier.wait('', await fleet.attach(''));
    await journal.check();
    stepFailure = null;
  }
  let probed: Promise<void> | null = null;
  const probing = setInterval(() => {
    if (stepFailure === null) return;
    probed ??= probe()
      .catch(() => undefined)
      .finally(() => {
        probed = null;
      });
  }, PROBE_MS);
  probing.unref();

  try {
    // Writes of each workspace that the journal knows may wait for this gateway.
    await fleet.attach('').catch(ignoreUnavailable);
    const refused = fleet.refused();
    if (refused !== null) throw new Error(refused);
    for (const workspace of journal.heads().keys()) await fleet.attach(workspace).catch(ignoreUnavailable);
  } catch (error) {
    clearInterval(probing);
    await abandon();
    throw error;
  }

  const notices = new Notices({
    calls,
    fleet,
    announcements,
    subscriber,
    clockSeen(workspace, record, at) {
      const isOld = time.isStale(workspace, record, at);
      if (isOld && workspace === '') calls.evaluate('note', '', noteOf()).catch(ignoreUnavailable);
    },
    async endedSeen(workspace, count) {
      if (count === ended.count(workspace)) return;
      const [gone] = await calls.commands(workspace, [['ZRANGE', keyOf(workspace, 'gone'), 0, -1]]);
      endedSeen(workspace, count, textsOf(gone));
    },
  });
  await notices.begin();

  let underWay = 0;
  let closed = false;
  async function counted<T>(run: () => Promise<T>): Promise<T> {
    if (closed) throw new StoreUnavailable('the store is closed');
    underWay += 1;
    try {
      return await run();
    } finally {
      underWay -= 1;
    }
  }

  async function workspaces(): Promise<readonly string[]> {
    const [entered] = await calls.commands('', [['SMEMBERS', keyOf('', 'entered')]]);
    return ['', ...textsOf(entered).map(unstored)];
  }

  const health = (): StoreHealth => {
    const epochs = [...fleet.attached().values()].map(Number);
    const common = { durability: options.durability, epoch: Math.max(1, ...epochs) };
    const not = (code: 'store_rolled_back' | 'clock_ahead' | 'store_full' | 'store_unavailable', message: string) => ({
      ...common,
      ready: false,
      problem: { code, message },
    });
    const setBack = fleet.rolledBack();
    if (setBack !== null) return not('store_rolled_back', setBack);
    const ahead = time.problem();
    if (ahead !== null) return not('clock_ahead', ahead);
    const awaited = [...new Set([...fleet.waiting().values()].flat())];
    const isBlind = performance.now() - notices.seenAt() > VIEW_MS;
    const message =
      topology
        .primaries()
        .map((primary) => primary.fault())
        .find((fault) => fault !== null) ??
      fleet.refused() ??
      (awaited.length > 0 ? `writes wait for the journal of ${awaited.join(', ')}` : null) ??
      failure?.message ??
      (isBlind ? 'Redis does not answer' : null) ??
      stepFailure?.message ??
      null;
    if (message === null) return { ...common, ready: true, problem: null };
    const isFull = message.includes('OOM') || message.includes('MISCONF');
    return not(isFull ? 'store_full' : 'store_unavailable', message);
  };

  return {
    get installId() {
      return fleet.installId();
    },
    now: time.now,
    health,
    ended,
    impediment(workspace) {
      const ahead = time.problem();
      return ahead === null ? topology.primaryOf(workspace).barrier.fault() : new StoreUnavailable(ahead);
    },
    workspaces,
    commit: (change) =>
      new Promise((resolve, reject) => {
        if (closed) throw new StoreUnavailable('the store is closed');
        underWay += 1;
        const failed = (error: unknown): void => {
          underWay -= 1;
          reject(error);
        };
        const done = (answer: Answer): void => {
          try {
            if (answer.kind === 'done')
              for (const { kind, id } of change.puts) notices.changed(change.workspace, kind, id);
          } catch (error) {
            // A listener's fault must not keep the rest of the group from its answers.
            failed(error);
            return;
          }
          underWay -= 1;
          resolve(answer);
        };
        batches.commit(change, done, failed);
      }),
    read: (...asked) => counted(() => reads.read(...asked)),
    rows: (workspace, names) => counted(() => reads.rows(workspace, names)),
    list: (query) => counted(() => reads.list(query)),
    sums: (workspace, limit) => counted(() => listedSums(reads.sumsPage, workspace, limit)),
    sumsPage: (...asked) => counted(() => reads.sumsPage(...asked)),
    ledger: (query) => counted(() => reads.ledger(query)),
    prune: (workspace, limit) =>
      counted(async () => Number((await calls.evaluate('prune', workspace, [String(limit)]))[4])),
    watch: (kinds, listener) => notices.watch(kinds, listener),
    recoverLost: fleet.recoverLost,
    acceptLoss: fleet.acceptLoss,
    async acceptTime() {
      const [, before, , , time] = (await calls.evaluate('note', '', noteOf())).map(Number);
      if (before === undefined || time === undefined || time - before < RIGHT_MS) return null;
      for (const workspace of await workspaces()) await calls.evaluate('note', workspace, noteOf({ trusted: '1' }));
      return { before, time };
    },
    announce: announcements.announce,
    others: announcements.others,
    async close() {
      clearInterval(probing);
      await probed;
      await notices.close();
      do await new Promise((resolve) => setImmediate(resolve));
      while (underWay > 0);
      closed = true;
      await fleet.leave().catch(ignoreUnavailable);
      await journal.close();
      topology.close();
      subscriber.close();
    },
  };
}

function ignoreUnavailable(error: unknown): void {
  if (!(error instanceof StoreUnavailable)) throw error;
}
