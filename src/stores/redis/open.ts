import { randomBytes } from 'node:crypto';
import type { LedgerDraft } from '../../effects/model/ledger.ts';
import { notDispatched, watchLostAnswers } from '../../effects/upkeep/lost-answers.ts';
import {
  type AdmitRequest,
  type Admission,
  type EffectStore,
  type StoreHealth,
  StoreUnavailable,
} from '../../effects/store.ts';
import { MAX_CLOCK_JUMP_MS } from '../clock-jump.ts';
import { openStepJournal } from '../journal/step-journal.ts';
import { admissionOf, admitArguments } from './admit.ts';
import { createAttempts } from './attempts.ts';
import { createBoard, type InForceDigests } from './board.ts';
import { type Changes, watchChanges } from './changes.ts';
import { eraseOnRedis } from './erase.ts';
import { accessOf, clusterNodes, targetOf } from './addresses.ts';
import { openConnection } from './connection.ts';
import { createControls } from './controls.ts';
import type { Durability } from './durability.ts';
import { createFleet, PLANNED_STEPS } from './fleet.ts';
import { createFrame, type StepReply } from './frame.ts';
import { createHoldings } from './holdings.ts';
import { createLost } from './lost.ts';
import { agentOf, throttledBy } from '../../effects/steps/refusal.ts';
import { rowOfDraft } from './ledger-events.ts';
import { type Answered, createKeyQueues } from './same-key.ts';
import { boundEffect, createRecords } from './records.ts';
import {
  giveUpArguments,
  giveUpResultOf,
  resolutionOf,
  resolveArguments,
  settleArguments,
  settlementOf,
  voteArguments,
  voteResultOf,
} from './settle.ts';
import { createStoreTime } from './store-time.ts';
import { type Counted, createThrottle } from './throttle.ts';
import { openCluster, openSinglePrimary, type Topology, type TopologySettings } from './topology.ts';

export interface RedisStoreOptions {
  readonly mode: 'standalone' | 'sentinel' | 'cluster';
  /**
   * `redis://[user:password@]host[:port][/database]`, `rediss://` with TLS. For Sentinel the host is the name of the
   * primary; for a cluster only user, password and TLS count where `nodes` are given.
   */
  readonly url: string;
  /** `host:port` of the sentinels, or of some nodes of the cluster. */
  readonly nodes: readonly string[];
  readonly durability: Durability;
  readonly allowWeakDurability: boolean;
  /** Folder beside the gateway for its journal; its own, and kept over restarts. */
  readonly journalFolder: string;
  /** How long a process may be frozen between its last check and the write to the socket, ms. */
  readonly maxFreezeMs: number;
  readonly retention: {
    /** Receipts, and that a key was used; `null` is for ever. */
    readonly keysMs: number | null;
    readonly effectsMs: number;
    readonly denialsMs: number;
  };
  /** Name of this gateway among those that share the store; the same after a restart. */
  readonly gatewayId: string;
  /** Acknowledged steps that a fail-over may have lost span at most this, ms; more is a store that was set back. */
  readonly maxReplayMs?: number;
  /** Opens also while the servers cannot be reached: steps reject until they can. Unfit settings are refused all the same. */
  readonly openUnreached?: boolean;
  /** How far a server's clock may be ahead of what is known, ms; 7 days where it is not said. */
  readonly maxClockJumpMs?: number;
  /** Instead of the server's clock, ms since the epoch, believed; for tests. */
  readonly clock?: () => number;
}

/** A store on Redis, with what only an operator of several gateways needs. */
export interface RedisStore extends EffectStore {
  /** Declares that a gateway's journal is lost: writes no longer wait for it. */
  recoverLost(gateway: string): Promise<void>;
  /** Goes on in a new epoch with a store that was emptied or set back. @returns gateways whose journals are awaited */
  acceptLoss(): Promise<readonly string[]>;
  /**
   * An operator says that the servers' clocks are right, however far they are ahead of what is known. Times in ms.
   * @returns `null` where they are believed as they are
   */
  acceptTime(): Promise<{ readonly before: number; readonly time: number } | null>;
  /** Tells the other gateways what is in force here; call it when the policies have been activated. */
  announce(digests: InForceDigests): void;
  /** The policies in force in the store (`null` until known), and what the other gateways have in force, by name. */
  announced(): { readonly policies: string | null; readonly others: ReadonlyMap<string, InForceDigests> };
}

const REPLAY_MS = 10_000;

/** How often it is looked whether steps go through again, ms. */
const PROBE_MS = 500;

/** Effects that one sweep script handles at most. */
const SWEEP_BATCH = 100;

/** A view of keys and pauses older than this is not trusted, ms. */
const VIEW_MS = 2000;

/**
 * Opens the store. It keeps connecting for as long as it is open; while it cannot, every step rejects at once.
 * @throws Error for settings of the servers that cannot be used, StoreUnavailable where they cannot be reached
 */
export async function openRedisStore(options: RedisStoreOptions): Promise<RedisStore> {
  const { gatewayId, retention } = options;
  const boot = randomBytes(9).toString('base64url');
  const time = createStoreTime(options.clock, options.maxClockJumpMs ?? MAX_CLOCK_JUMP_MS);
  const { now, observe } = time;
  const clock = time.argument;
  let failure: StoreUnavailable | null = null;
  let stepFailure: StoreUnavailable | null = null;
  let changes: Changes | null = null;

  const access = accessOf(options.url);
  let opening = true;
  const journal = await openStepJournal(options.journalFolder);
  // A gateway that has worked here before waits for what comes back by itself; where none has, settings are wrong.
  const isRestart = journal.memory !== null;
  const settings: TopologySettings = {
    access,
    durability: options.durability,
    allowWeakDurability: options.allowWeakDurability,
    gatewayId,
    clock,
    atFirstStart: () => opening && !isRestart,
  };
  const target = targetOf(options);
  const topology: Topology =
    options.mode === 'cluster' ? openCluster(clusterNodes(options), settings) : openSinglePrimary(target, settings);
  const subscriber = openConnection(target, access, { name: `svc:${gatewayId}:changes`, answerMs: 3000 });
  try {
    await topology.ready();
    opening = false;
  } catch (error) {
    if (!(options.openUnreached === true && error instanceof StoreUnavailable)) {
      topology.close();
      subscriber.close();
      await journal.close();
      throw error;
    }
    failure = error;
  }

  const fleet = createFleet({
    topology,
    journal,
    gatewayId,
    boot,
    clock,
    estimate: time.estimate,
    observe,
    disbelieve: time.disbelieve,
    maxReplayMs: options.maxReplayMs ?? REPLAY_MS,
    form: PLANNED_STEPS,
  });
  const frame = createFrame({
    topology,
    fleet,
    journal,
    gatewayId,
    clock,
    observe,
    disbelieve: time.disbelieve,
    report: (error) => {
      failure = error;
    },
    reportStep: (error) => {
      stepFailure = error;
    },
  });
  const lost = createLost(frame, now);
  const records = createRecords(frame, lost);
  const controls = createControls(frame, now, {
    keysChanged: (version, handle) => changes?.keysChanged(version, handle),
    pausesChanged: (workspace, version) => changes?.pausesChanged(workspace, version),
  });
  const holdings = createHoldings(frame, lost, now);
  const board = createBoard(frame, fleet, gatewayId);
  const throttle = createThrottle();
  const attempts = createAttempts();
  const lostAnswers = watchLostAnswers(
    (workspace, key) => boundEffect(frame, workspace, key),
    (request) => frame.step('settle', request.workspace, settleArguments(request)),
  );
  const keyListeners: ((handles: readonly string[] | null) => void)[] = [];
  const pauseListeners: ((workspace: string) => void)[] = [];

  /** After a step that failed, whether steps go through again, also where nobody asks for one. */
  async function probe(): Promise<void> {
    const epoch = await fleet.attach('');
    const primary = topology.primaryOf('');
    const reply = await primary.connection().run('mark', '', [epoch, gatewayId, clock()]);
    await primary.barrier.wait('', epoch);
    await journal.check();
    if (reply[0] === 'marked') stepFailure = null;
  }
  const probing = setInterval(() => {
    if (stepFailure !== null) void probe().catch(() => undefined);
  }, PROBE_MS);
  probing.unref();
  const flushing = setInterval(() => void flushCounted().catch(() => undefined), 1000);
  flushing.unref();

  try {
    // Writes of each workspace that the journal knows may wait for this gateway.
    await fleet.attach('').catch(ignoreUnavailable);
    const taken = fleet.nameTaken();
    if (taken !== null) throw new Error(taken);
    for (const workspace of journal.heads().keys()) await fleet.attach(workspace).catch(ignoreUnavailable);
    await controls.drainOutbox().catch(ignoreUnavailable);
  } catch (error) {
    clearInterval(flushing);
    clearInterval(probing);
    lostAnswers.close();
    topology.close();
    subscriber.close();
    await journal.close();
    throw error;
  }

  const watched = await watchChanges({
    frame,
    fleet,
    board,
    subscriber,
    clockSeen(workspace, record, at) {
      const isOld = time.look(workspace, record, at);
      if (isOld && workspace === '') frame.step('clock', '', []).catch(ignoreUnavailable);
    },
    listeners: {
      keys: (handles) => {
        for (const listen of keyListeners) listen(handles);
      },
      pauses: (workspace) => {
        for (const listen of pauseListeners) listen(workspace);
      },
    },
  });
  changes = watched;

  async function flushCounted(): Promise<void> {
    const byWorkspace = new Map<string, LedgerDraft[]>();
    for (const counted of throttle.due(now())) {
      const drafts = byWorkspace.get(counted.workspace) ?? [];
      drafts.push(countedEvent(counted));
      byWorkspace.set(counted.workspace, drafts);
    }
    for (const [workspace, drafts] of byWorkspace) await append(workspace, drafts);
  }
  async function append(workspace: string, events: readonly LedgerDraft[]): Promise<void> {
    if (events.length === 0) return;
    await frame.step('append', workspace, [JSON.stringify(events.map(rowOfDraft))]);
  }

  async function askAdmission(request: AdmitRequest, preview: boolean): Promise<Answered> {
    const { workspace } = request;
    const args = admitArguments(request, {
      preview,
      maxFreezeMs: options.maxFreezeMs,
      boot,
      quiet: throttle.quiet(workspace, throttledBy(request), now()),
    });
    lostAnswers.askedAgain(request);
    const reply = await frame
      .step('admit', workspace, args, {
        // What others wrote is told only when it is as durable as what one writes oneself.
        confirm: ({ tag }) => !preview && (tag === 'existing' || tag === 'pending' || tag === 'expired'),
        ...(preview ? {} : { undurable: (done: StepReply) => takeBack(request, done) }),
      })
      .catch((error: unknown) => {
        if (!preview) lostAnswers.lost(request);
        throw error;
      });
    const { admission, counted } = admissionOf(request, reply);
    if (preview) return { admission, written: false };
    if (admission.kind === 'dispatch') attempts.admitted(admission.effect);
    const word = throttleWord(admission);
    if (counted !== '') {
      throttle.count(request, counted, effectIdOf(admission), reply.now);
    } else if (word !== null) throttle.wrote(workspace, throttledBy(request), word, reply.now);
    return { admission, written: reply.written };
  }

  /** An admission that is not durable is not dispatched, and says so. */
  async function takeBack(request: AdmitRequest, reply: StepReply): Promise<void> {
    if (reply.tag !== 'dispatch' && reply.tag !== 'first') return;
    const { admission } = admissionOf(request, reply);
    if (admission.kind !== 'dispatch' || admission.effect.life.state !== 'executing') return;
    const { id, life } = admission.effect;
    await frame.step(
      'settle',
      request.workspace,
      settleArguments(notDispatched(request.workspace, id, life.lease.fence)),
    );
  }

  async function ask(request: AdmitRequest): Promise<Answered> {
    const first = await askAdmission(request, false);
    const { admission } = first;
    // A workspace may have missed a policy's activation that was cut short.
    if (admission.kind !== 'stale' || admission.versions.policy === request.seen.policy) return first;
    return (await controls.bringPolicy(request.workspace)) ? askAdmission(request, false) : first;
  }

  const admit = createKeyQueues(ask, (request, admission) => {
    const word = throttleWord(admission);
    if (word !== null) throttle.count(request, word, effectIdOf(admission), now());
  });

  const health = (): StoreHealth => {
    const epochs = [...fleet.attached().values()].map(({ epoch }) => Number(epoch));
    const common = { durability: options.durability, epoch: Math.max(1, ...epochs) };
    const setBack = fleet.rolledBack();
    if (setBack !== null) return { ...common, ready: false, problem: { code: 'store_rolled_back', message: setBack } };
    const ahead = time.problem();
    if (ahead !== null) return { ...common, ready: false, problem: { code: 'clock_ahead', message: ahead } };
    const awaited = [...new Set([...fleet.waiting().values()].flat())];
    const fault =
      topology
        .primaries()
        .find((primary) => primary.fault() !== null)
        ?.fault() ?? null;
    const message =
      fault ??
      fleet.nameTaken() ??
      (awaited.length > 0 ? `writes wait for the journal of ${awaited.join(', ')}` : null) ??
      (performance.now() - watched.seenAt() > VIEW_MS ? (failure?.message ?? 'Redis does not answer') : null) ??
      failure?.message ??
      stepFailure?.message ??
      null;
    if (message === null) return { ...common, ready: true, problem: null };
    const full = message.includes('OOM') || message.includes('MISCONF');
    return { ...common, ready: false, problem: { code: full ? 'store_full' : 'store_unavailable', message } };
  };

  return {
    get installId() {
      return fleet.installId();
    },
    now,
    health,
    admit,
    preview: async (request) => (await askAdmission(request, true)).admission,
    async settle(request) {
      const known = attempts.take(request.fence.nonce);
      const args = settleArguments(request, known !== null);
      return settlementOf(await frame.step('settle', request.workspace, args), request, args, known);
    },
    async resolve(request) {
      const args = resolveArguments(request);
      return resolutionOf(await frame.step('resolve', request.workspace, args), args);
    },
    giveUp: async (request) => giveUpResultOf(await frame.step('giveup', request.workspace, giveUpArguments(request))),
    erase: (request) =>
      eraseOnRedis(
        request,
        () => records.effect(request.workspace, request.effectId),
        (args) => frame.step('erase', request.workspace, args),
      ),
    vote: async (request) => voteResultOf(await frame.step('vote', request.workspace, voteArguments(request))),
    async sweep(limit) {
      const total = { lost: 0, approvalsExpired: 0, aged: 0 };
      for (const workspace of await controls.entered()) {
        const left = limit - Math.max(total.lost, total.approvalsExpired, total.aged);
        for (let rest = left; rest > 0; rest -= SWEEP_BATCH) {
          const batch = Math.min(rest, SWEEP_BATCH);
          const at = now();
          const { values } = await frame.step('sweep', workspace, [
            String(batch),
            String(at - retention.effectsMs - 1),
            String(at - retention.denialsMs - 1),
            retention.keysMs === null ? '' : String(at - retention.keysMs - 1),
          ]);
          const [lost = 0, expired = 0, aged = 0] = values.map(Number);
          total.lost += lost;
          total.approvalsExpired += expired;
          total.aged += aged;
          if (Math.max(lost, expired, aged) < batch) break;
        }
      }
      return total;
    },
    async grantedApprovals(limit) {
      const found = [];
      for (const workspace of await controls.entered()) {
        if (found.length >= limit) break;
        found.push(...(await records.granted(workspace, limit - found.length)));
      }
      return found;
    },
    effect: records.effect,
    effects: records.effects,
    receipt: records.receipt,
    async effectLedger(workspace, effectId) {
      await flushCounted();
      return records.effectLedger(workspace, effectId);
    },
    async ledger(workspace, after, limit) {
      await flushCounted();
      return records.ledger(workspace, after, limit);
    },
    async ledgerBefore(workspace, before, limit) {
      await flushCounted();
      return records.ledgerBefore(workspace, before, limit);
    },
    append,
    approval: records.approval,
    approvals: records.approvals,
    budgets: records.budgets,
    ...holdings,
    setPause: controls.setPause,
    liftPause: controls.liftPause,
    pauses: controls.pauses,
    activatePolicy: controls.activatePolicy,
    putKey: controls.putKey,
    putFirstKey: controls.putFirstKey,
    key: controls.key,
    keys: controls.keys,
    endKey: controls.endKey,
    touchKeys: controls.touchKeys,
    hasKeys: controls.hasKeys,
    secretMark: controls.secretMark,
    bindSecret: controls.bindSecret,
    seeUsers: controls.seeUsers,
    userSince: controls.userSince,
    putWorkspace: controls.putWorkspace,
    workspaces: controls.workspaces,
    putAgent: controls.putAgent,
    agents: controls.agents,
    onKeysChanged: (listener) => void keyListeners.push(listener),
    onPausesChanged: (listener) => void pauseListeners.push(listener),
    recoverLost: fleet.recoverLost,
    acceptLoss: fleet.acceptLoss,
    async acceptTime() {
      const { tag, values } = await frame.step('believe', '', ['1']);
      if (tag === 'right') return null;
      for (const workspace of await controls.entered()) await frame.step('believe', workspace, ['']);
      const [before = 0, accepted = 0] = values.map(Number);
      return { before, time: accepted };
    },
    announce: board.announce,
    announced: () => ({ policies: board.policies(), others: board.others() }),
    async close() {
      clearInterval(flushing);
      clearInterval(probing);
      lostAnswers.close();
      await watched.close();
      await board.leave().catch(ignoreUnavailable);
      await frame.close();
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

/** The word under which repetitions of an answer are counted; `null` for answers that change something. */
function throttleWord(admission: Admission): string | null {
  switch (admission.kind) {
    case 'existing':
      return admission.effect.life.state === 'committed' ? 'duplicate' : null;
    case 'expired':
      return 'duplicate';
    case 'refused':
      return admission.decision === 'idempotency_conflict' ? 'conflict' : admission.reason.code;
    case 'dispatch':
    case 'pending':
    case 'stale':
      return null;
  }
}

function effectIdOf(admission: Admission): string {
  switch (admission.kind) {
    case 'existing':
      return admission.effect.id;
    case 'expired':
      return admission.tombstone.id;
    case 'refused':
      return admission.effectId;
    case 'dispatch':
    case 'pending':
    case 'stale':
      return '';
  }
}

function countedEvent({ code, sample, effectId, repeated }: Counted): LedgerDraft {
  const actor = agentOf(sample);
  if (code === 'duplicate') return { kind: 'effect.duplicate_blocked', effectId, actor, data: { repeated } };
  if (code === 'conflict')
    return { kind: 'effect.conflict', effectId, actor, data: { tool: sample.action.tool, repeated } };
  return {
    kind: 'effect.denied',
    effectId,
    actor,
    data: { code, tool: sample.action.tool, policy_version: sample.verdict.trace.policyVersion, repeated },
  };
}
