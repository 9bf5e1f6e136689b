import { type EffectStore, type StoreHealth, StoreUnavailable } from '../../effects/store.ts';
import { MAX_CLOCK_JUMP_MS } from '../clock-jump.ts';
import { runInProcess, type Runner, type RunnerListener } from './in-process.ts';
import type { Retention } from './sweep.ts';
import { runInWorker } from './worker-client.ts';

export interface EmbeddedOptions {
  /** Folder of the store; made where it is absent. */
  readonly path: string;
  /** How long to wait for another gateway to let go of the store, ms. */
  readonly lockWaitMs: number;
  readonly retention: Retention;
  /** How far the machine's clock may be ahead of what is known, ms; 7 days where it is not said. */
  readonly maxClockJumpMs?: number;
  /** `auto`: in a worker thread where the machine has two cores or more. */
  readonly worker: 'auto' | 'never';
  /** Instead of the machine's clock, ms since the epoch; for tests. Keeps the store in this thread. */
  readonly clock?: () => number;
}

/** Transactions of one sweep hold up others no longer than this many records take. */
const SWEEP_BATCH = 200;

/**
 * Opens the store in a folder on this machine: SQLite, one gateway at a time. A store that is older than what is
 * remembered beside it opens, is not ready (`store_rolled_back`) and rejects every operation.
 * @throws StoreUnavailable when another gateway holds the store, or its file is damaged
 */
export async function openEmbeddedStore(options: EmbeddedOptions): Promise<EffectStore> {
  const keyListeners: ((handles: readonly string[] | null) => void)[] = [];
  const pauseListeners: ((workspace: string) => void)[] = [];
  const listener: RunnerListener = {
    onKeysChanged(handles) {
      for (const listen of keyListeners) listen(handles);
    },
    onPausesChanged(workspace) {
      for (const listen of pauseListeners) listen(workspace);
    },
  };
  const { path, lockWaitMs, clock = null, maxClockJumpMs = MAX_CLOCK_JUMP_MS } = options;
  const wantsWorker = options.worker === 'auto' && clock === null;
  const runner =
    (wantsWorker ? await runInWorker({ path, lockWaitMs, maxClockJumpMs }, listener) : null) ??
    (await runInProcess({ path, lockWaitMs, maxClockJumpMs, clock }, listener));
  return storeOver(runner, options.retention, keyListeners, pauseListeners);
}

function storeOver(
  { call, now, health, installId, close }: Runner,
  retention: Retention,
  keyListeners: ((handles: readonly string[] | null) => void)[],
  pauseListeners: ((workspace: string) => void)[],
): EffectStore {
  return {
    installId,
    now,
    health: (): StoreHealth => health(),
    admit(request) {
      const { problem } = health();
      return problem?.code === 'clock_ahead'
        ? Promise.reject(new StoreUnavailable(problem.message))
        : call('admit', request);
    },
    preview: (request) => call('preview', request),
    settle: (request) => call('settle', request),
    resolve: (request) => call('resolve', request),
    vote: (request) => call('vote', request),
    giveUp: (request) => call('giveUp', request),
    erase: (request) => call('erase', request),
    async sweep(limit) {
      if (health().problem?.code === 'clock_ahead') throw new StoreUnavailable(health().problem?.message ?? '');
      const total = { lost: 0, approvalsExpired: 0, aged: 0 };
      for (let left = limit; left > 0; left -= SWEEP_BATCH) {
        const batch = Math.min(left, SWEEP_BATCH);
        const { lost, approvalsExpired, aged } = await call('sweep', { limit: batch, retention });
        total.lost += lost;
        total.approvalsExpired += approvalsExpired;
        total.aged += aged;
        if (Math.max(lost, approvalsExpired, aged) < batch) break;
      }
      return total;
    },
    grantedApprovals: (limit) => call('grantedApprovals', { limit }),
    effect: (workspace, id) => call('effect', { workspace, id }),
    effects: (workspace, filter) => call('effects', { workspace, filter }),
    receipt: (workspace, id) => call('receipt', { workspace, id }),
    effectLedger: (workspace, id) => call('effectLedger', { workspace, id }),
    ledger: (workspace, after, limit) => call('ledger', { workspace, after, limit }),
    ledgerBefore: (workspace, before, limit) => call('ledgerBefore', { workspace, before, limit }),
    async append(workspace, events) {
      await call('append', { workspace, events });
    },
    approval: (workspace, id) => call('approval', { workspace, id }),
    approvals: (workspace, filter) => call('approvals', { workspace, filter }),
    takeClaim: (request) => call('takeClaim', request),
    renewClaim: (workspace, id, ttlMs, actor) => call('renewClaim', { workspace, id, ttlMs, actor }),
    releaseClaim: (workspace, id, actor) => call('releaseClaim', { workspace, id, actor }),
    claim: (workspace, id) => call('claim', { workspace, id }),
    claims: (workspace) => call('claims', { workspace }),
    makeReservation: (request) => call('makeReservation', request),
    releaseReservation: (workspace, id, actor) => call('releaseReservation', { workspace, id, actor }),
    reservation: (workspace, id) => call('reservation', { workspace, id }),
    reservations: (workspace) => call('reservations', { workspace }),
    setPause: (request) => call('setPause', request),
    liftPause: (workspace, id, by, actor) => call('liftPause', { workspace, id, by, actor }),
    pauses: (workspace) => call('pauses', { workspace }),
    budgets: (workspace) => call('budgets', { workspace }),
    activatePolicy: (version, budgets) => call('activatePolicy', { version, budgets }),
    async putKey(key, actor) {
      await call('putKey', { key, actor });
    },
    putFirstKey: (key, actor) => call('putFirstKey', { key, actor }),
    key: (handle) => call('key', { handle }),
    keys: (user) => call('keys', { user }),
    endKey: (id, end, actor) => call('endKey', { id, end, actor }),
    async touchKeys(ids, at) {
      await call('touchKeys', { ids, at });
    },
    onKeysChanged(listener) {
      keyListeners.push(listener);
    },
    onPausesChanged(listener) {
      pauseListeners.push(listener);
    },
    secretMark: () => call('secretMark', null),
    bindSecret: (marks) => call('bindSecret', { marks }),
    async seeUsers(ids) {
      await call('seeUsers', { ids });
    },
    userSince: (id) => call('userSince', { id }),
    putWorkspace: (id, actor) => call('putWorkspace', { id, actor }),
    workspaces: () => call('workspaces', null),
    async putAgent(agent, actor) {
      await call('putAgent', { agent, actor });
    },
    agents: () => call('agents', null),
    close,
  };
}
