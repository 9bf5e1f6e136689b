import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { BudgetRow, EffectRecord, SignedReceipt } from '../effects/model/effect.ts';
import type { ClaimRecord, ReservationRecord } from '../effects/model/claim.ts';
import type { KeySeals } from '../effects/model/key.ts';
import { INSTALLATION, type LedgerEvent } from '../effects/model/ledger.ts';
import { watchLostAnswers } from '../effects/upkeep/lost-answers.ts';
import { isClaimActive } from '../effects/steps/obligations.ts';
import { AT_ONCE, createReadingTurns } from '../effects/run/reading-turns.ts';
import { type Admission, type AdmitRequest, type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { PAGE_BYTES } from '../effects/model/page.ts';
import type { OpenRows, SegmentStore } from '../stores/open-rows.ts';
import { tombstoneOf } from './aged.ts';
import { createAllowanceStore } from './allowances.ts';
import { APPROVALS, approvalRows, approvalsIn, leftRows } from './approval-rows.ts';
import { createArchive } from './archive.ts';
import { capCounts } from './cap-counts.ts';
import { pauseRows, policyRows } from './control-rows.ts';
import type { Draft } from './draft.ts';
import { brainRows, createEntities } from './entities.ts';
import { pageOfEffects } from './effect-pages.ts';
import {
  effectRows,
  effectsIn,
  keyRows,
  probedAgain,
  receiptIn,
  type StoredEffect,
  unprobedOf,
} from './effect-rows.ts';
import { budgetRows } from './counters.ts';
import { CLAIMS, claimRows, POOLS, poolRows } from './held-rows.ts';
import { apiKeyRows, createInstallation, ENTERED, enteredRows } from './installation.ts';
import { exportParts } from './export.ts';
import { eventSlices, pageOfLedger } from './ledger-pages.ts';
import { entries, firstOf, type Readable, shownOf } from './lists.ts';
import { createNotifications } from './notifications.ts';
import { emptyOutbox } from './outbox.ts';
import { pageOf } from './pages.ts';
import { createPasskeyStore } from './passkeys.ts';
import { createPauseStore } from './pauses.ts';
import { createPolicies } from './policies.ts';
import { type AgeScan, type Retention, sweepWorkspace } from './retention.ts';
import { createStepRunner, readRecord } from './runner.ts';
import { remoteSteps } from './program.ts';
import { createSessionStore } from './sessions.ts';
import { createSteps } from './steps.ts';
import { appendEvents } from './view.ts';

export interface RecordsOptions {
  readonly retention: Retention;
  readonly keySeals: KeySeals;
  /** `max_freeze` (effects.md, A1), ms. */
  readonly maxFreezeMs: number;
  /** Where effects go that are past their age; absent: nowhere. */
  readonly archive?: SegmentStore | null | undefined;
}

/** How often counted refusals are written, ms. */
const FLUSH_MS = 1000;

/** The store of effects on top of rows: the rules run here, and the row store only keeps rows. */
export function createEffectStore(
  store: OpenRows,
  { retention, keySeals, maxFreezeMs, archive: folder = null }: RecordsOptions,
): EffectStore {
  const runner = createStepRunner(store);
  const turns = createReadingTurns();
  const archive = createArchive(store, runner, folder);
  const readable = { store: archive.whole, turns };
  const steps =
    store.program === undefined
      ? createSteps(store, runner, { ended: store.ended, maxFreezeMs })
      : remoteSteps(store.program, runner, store.ended);
  const policies = createPolicies(store, runner);
  const scans = new Map<string, AgeScan>();
  let ids = 0;
  const boot = crypto.randomUUID();
  const newId = (): string => {
    ids += 1;
    return `${boot}.${ids}`;
  };
  const installation = createInstallation(readable, runner, keySeals, newId);
  const entered = new Set<string>();
  const underWay = new Map<string, Promise<void>>();
  const keyListeners: ((handles: readonly string[] | null) => void)[] = [];
  const pauseListeners: ((workspace: string) => void)[] = [];
  const policyListeners: (() => void)[] = [];
  const entityListeners: ((workspace: string) => void)[] = [];
  const lostAnswers = watchLostAnswers(
    async (workspace, key) => {
      const id = await readRecord(runner, keyRows, workspace, key);
      const stored = id === null ? null : await readRecord(runner, effectRows, workspace, id);
      return stored?.kind === 'effect' ? stored.effect : null;
    },
    (request) => steps.settle(request),
  );
  const flushing = setInterval(() => void flush().catch(() => undefined), FLUSH_MS);
  flushing.unref();

  store.watch([apiKeyRows.kind, pauseRows.kind, policyRows.kind, brainRows.kind], ({ workspace, kind, id }) => {
    if (kind === policyRows.kind) {
      // Those of workspaces follow it.
      if (workspace === INSTALLATION || workspace === null) for (const listen of policyListeners) listen();
      return;
    }
    if (kind === apiKeyRows.kind) {
      // The id of a key contains its handle.
      for (const listen of keyListeners) listen(id === null ? null : [id.replace(/^key_/, '')]);
      return;
    }
    const listeners = kind === brainRows.kind ? entityListeners : pauseListeners;
    for (const of of workspace === null ? entered : [workspace]) for (const listen of listeners) listen(of);
  });

  async function flush(): Promise<void> {
    await steps.flushCounted();
  }

  /**
   * Puts every workspace in which something is written on record, so that sweeps find it, and brings the policy in
   * force there.
   */
  function enter(workspace: string): Promise<void> {
    if (isEntered(workspace)) return Promise.resolve();
    let entering = underWay.get(workspace);
    if (entering === undefined) {
      entering = firstEnter(workspace).finally(() => underWay.delete(workspace));
      underWay.set(workspace, entering);
    }
    return entering;
  }

  const isEntered = (workspace: string): boolean => workspace === INSTALLATION || entered.has(workspace);

  async function firstEnter(workspace: string): Promise<void> {
    await runner.run(INSTALLATION, (draft) => {
      if (enteredRows.get(draft, workspace) === null) enteredRows.put(draft, workspace, workspace);
    });
    await archive.catchUp(workspace);
    await policies.bring(workspace);
    entered.add(workspace);
  }

  async function workspaces(): Promise<readonly string[]> {
    const found: string[] = [];
    for await (const { id } of entries(store, { workspace: INSTALLATION, list: ENTERED, kind: enteredRows.kind }))
      found.push(id);
    return found;
  }

  /** Whether a step may run at once: nothing has to be brought to its workspace, or written, before. */
  const isReady = (workspace: string): boolean => isEntered(workspace) && !steps.hasCounted();

  async function prepare(workspace: string): Promise<void> {
    await enter(workspace);
    await flush();
  }

  const inWorkspace: typeof steps.run = async (name, workspace, request) => {
    if (!isReady(workspace)) await prepare(workspace);
    return steps.run(name, workspace, request);
  };

  async function write<Result>(workspace: string, step: (draft: Draft) => Result): Promise<Result> {
    await enter(workspace);
    return (await runner.run(workspace, step)).result;
  }

  async function storedEffect(workspace: string, id: string): Promise<StoredEffect | null> {
    const stored = await readRecord(runner, effectRows, workspace, id);
    if (stored === null) return null;
    return stored.kind === 'tombstone'
      ? archive.recalled(stored)
      : { kind: 'effect', effect: await present(stored.effect) };
  }

  /** Declares an effect whose owner has ended before it is shown. */
  async function present(effect: EffectRecord): Promise<EffectRecord> {
    const { workspace, id, life } = effect;
    // A list may still show the effect as it was before somebody declared it.
    if (life.state !== 'executing' || store.ended.quietAt(workspace, life.lease) === null) return effect;
    await steps.declareLost(workspace, id);
    const stored = await readRecord(runner, effectRows, workspace, id);
    return stored?.kind === 'effect' ? stored.effect : effect;
  }

  async function effect(workspace: string, id: string): Promise<EffectRecord | null> {
    const stored = await storedEffect(workspace, id);
    return stored?.kind === 'effect' ? stored.effect : null;
  }

  function admit(request: AdmitRequest): Promise<Admission> {
    const impediment = store.impediment(request.workspace);
    if (impediment !== null) return Promise.reject(impediment);
    const before = lostAnswers.before(request);
    const asked =
      before === null && isReady(request.workspace) ? steps.admit(request) : admitAfter(before ?? undefined, request);
    return asked.then(
      (admission) => {
        if (admission.kind === 'expired') return withReceipt(admission);
        return isOutdated(admission, request) ? admitAgain(request) : admission;
      },
      (error: unknown) => lose(request, error),
    );
  }

  /** The answer to a key whose effect is in the archive, with the receipt from there. */
  async function withReceipt(admission: Extract<Admission, { kind: 'expired' }>): Promise<Admission> {
    const stored = await archive.recalled({ kind: 'tombstone', tombstone: admission.tombstone });
    const tombstone = stored.kind === 'effect' ? tombstoneOf(stored.effect, null) : stored.tombstone;
    return tombstone === null ? admission : { ...admission, tombstone };
  }

  async function admitAfter(before: Promise<void> | undefined, request: AdmitRequest): Promise<Admission> {
    await before;
    if (!isReady(request.workspace)) await prepare(request.workspace);
    return steps.admit(request);
  }

  /** Whether the activation of the policy that the gateway has may not have come to the workspace yet. */
  function isOutdated(admission: Admission, { seen }: AdmitRequest): boolean {
    return admission.kind === 'stale' && admission.versions.policy !== seen.policy;
  }

  async function admitAgain(request: AdmitRequest): Promise<Admission> {
    try {
      // Of calls at once one brings it.
      await policies.bring(request.workspace);
      return await steps.admit(request);
    } catch (error) {
      return lose(request, error);
    }
  }

  function lose(request: AdmitRequest, error: unknown): never {
    if (error instanceof StoreUnavailable) lostAnswers.lost(request);
    throw error;
  }

  async function events(
    workspace: string,
    about: string | null,
    order: 'up' | 'down',
    from: number | null,
    limit: number,
    by: Readable = readable,
  ): Promise<readonly LedgerEvent[]> {
    const found: LedgerEvent[] = [];
    for await (const slice of eventSlices(by, { workspace, about, order }, from, limit)) found.push(...slice);
    return found;
  }

  async function effectLedger(workspace: string, id: string, by: Readable): Promise<readonly LedgerEvent[]> {
    await effect(workspace, id);
    return events(workspace, id, 'up', null, Infinity, by);
  }

  const claim = async (workspace: string, id: string): Promise<ClaimRecord | null> =>
    steps.preview('claim', workspace, { workspace, id });

  return {
    get installId() {
      return store.installId;
    },
    now: store.now,
    health() {
      const health = store.health();
      if (health.problem !== null || archive.problems.size === 0) return health;
      const [problem = null] = archive.problems.values();
      return { ...health, ready: false, problem };
    },
    commits() {
      const here = runner.commits();
      const there = store.program?.commits?.();
      // Here what is done there is counted, but not what it took.
      if (there === undefined) return here;
      return { done: here.done, moved: here.moved + there.moved, givenUp: here.givenUp + there.givenUp };
    },
    turns,
    admit,
    async preview(request) {
      await enter(request.workspace);
      const admission = await steps.preview('admit', request.workspace, request);
      return admission.kind === 'expired' ? withReceipt(admission) : admission;
    },
    settle: (request) =>
      isReady(request.workspace) ? steps.settle(request) : prepare(request.workspace).then(() => steps.settle(request)),
    resolve: (request) => inWorkspace('resolve', request.workspace, request),
    vote: (request) => inWorkspace('vote', request.workspace, request),
    giveUp: (request) => inWorkspace('give_up', request.workspace, request),
    erase: (request) => inWorkspace('erase', request.workspace, request),
    planProbe: (request) => inWorkspace('plan_probe', request.workspace, request),
    async probesDue(workspace, tool, afterMs, limit) {
      const now = store.now();
      // In one order: what is put off again and again does not keep others back for ever.
      const dueIn = async (list: string, afterwards: number) => {
        const entries = await firstOf(store, { workspace, list, kind: effectRows.kind, to: now - afterwards }, limit);
        return entries.map(({ at, row }) => ({ at: at + afterwards, row }));
      };
      const due = [...(await dueIn(unprobedOf(tool), afterMs)), ...(await dueIn(probedAgain(tool), 0))];
      const longest = due.toSorted((one, other) => one.at - other.at).slice(0, limit);
      const stored = longest.map(({ row }) => effectRows.of(row));
      const effects = stored.flatMap((of) => (of.kind === 'effect' ? of.effect : []));
      return effects.filter(({ life }) => life.state === 'unknown');
    },
    async sweep(limit) {
      const { problem } = store.health();
      if (problem?.code === 'clock_ahead') throw new StoreUnavailable(problem.message);
      await emptyOutbox(store, runner);
      await flush();
      const total = { lost: 0, approvalsExpired: 0, aged: 0, unsettled: 0 };
      let reached: number | null = null;
      let oldestUnknown: number | null = null;
      let hindrance: StoreUnavailable | null = null;
      for (const workspace of await workspaces()) {
        try {
          await store.ended.known(workspace);
          await enter(workspace);
          // After an interrupted activation the policy may not be in force everywhere.
          await policies.bring(workspace);
          const scan = scans.get(workspace) ?? { reached: null, unsettled: 0, unsettledBefore: 0 };
          scans.set(workspace, scan);
          const swept = await sweepWorkspace(
            { store, runner, steps, scan, archive: folder === null ? null : archive },
            workspace,
            limit,
            retention,
          );
          total.unsettled += Math.max(scan.unsettled, scan.unsettledBefore);
          if (scan.reached !== null) reached = Math.min(reached ?? scan.reached.at, scan.reached.at);
          const unknown = { workspace, list: effectsIn('unknown'), kind: effectRows.kind };
          for (const { at } of await firstOf(store, unknown, 1)) oldestUnknown = Math.min(oldestUnknown ?? at, at);
          total.lost += swept.lost;
          total.approvalsExpired += swept.approvalsExpired;
          total.aged += swept.aged;
        } catch (error) {
          // One that cannot be used, such as for its archive, does not keep all others from being swept.
          if (!(error instanceof StoreUnavailable)) throw error;
          hindrance ??= error;
        }
      }
      if (hindrance !== null) throw hindrance;
      return { ...total, reached, oldestUnknown, archive: archive.state() };
    },
    async grantedApprovals(limit) {
      const found: ApprovalRecord[] = [];
      for (const workspace of await workspaces()) {
        const granted = await firstOf(
          store,
          { workspace, list: approvalsIn('granted'), kind: approvalRows.kind },
          limit - found.length,
        );
        found.push(...granted.map(({ row }) => approvalRows.of(row)));
      }
      return found;
    },

    effect,
    async effects(workspace, filter) {
      await flush();
      await store.ended.known(workspace);
      return pageOfEffects({ ...readable, ended: store.ended }, workspace, filter, present);
    },
    async receipt(workspace, id): Promise<SignedReceipt | null> {
      const stored = await storedEffect(workspace, id);
      const receipt = stored === null ? null : receiptIn(stored);
      return receipt?.jws == null ? null : receipt;
    },
    effectLedger: (workspace, id) => effectLedger(workspace, id, { ...readable, turns: AT_ONCE }),
    effectLedgerInTurns: (workspace, id) => effectLedger(workspace, id, readable),
    async ledger(workspace, after, limit) {
      await flush();
      return events(workspace, null, 'up', after, limit);
    },
    async ledgerBefore(workspace, before, limit) {
      await flush();
      return events(workspace, null, 'down', before, limit);
    },
    async ledgerPage(workspace, filter) {
      await flush();
      return pageOfLedger(readable, workspace, filter);
    },
    async *exported(request, context) {
      await flush();
      await store.ended.known(request.workspace);
      const { readProgram: program = null } = store;
      yield* exportParts({ readable, program, hasArchive: folder !== null, present }, request, context);
    },
    async append(workspace, events) {
      if (events.length > 0) await write(workspace, (draft) => appendEvents(draft, events));
    },

    approval: (workspace, id) => readRecord(runner, approvalRows, workspace, id),
    boundTo: (workspace, key) => readRecord(runner, keyRows, workspace, key),
    endSession: (workspace, session, until) =>
      write(workspace, (draft) => {
        if (leftRows.get(draft, session) === null) leftRows.put(draft, session, { until });
      }),
    hasEnded: async (workspace, session) => (await readRecord(runner, leftRows, workspace, session)) !== null,
    approvals(workspace, { status, agentId, limit, cursor }) {
      const list = status === 'pending' || status === 'granted' ? approvalsIn(status) : APPROVALS;
      const most = { items: limit, characters: PAGE_BYTES };
      return pageOf(readable, { workspace, list, kind: approvalRows.kind }, cursor, most, (row) => {
        const approval = approvalRows.of(row);
        const fits =
          (status === null || approval.status === status) &&
          (agentId === null || approval.requester.agentId === agentId);
        return fits ? approval : null;
      });
    },

    takeClaim: (request) => inWorkspace('take_claim', request.workspace, request),
    renewClaim: (workspace, id, ttlMs, actor) => inWorkspace('renew_claim', workspace, { workspace, id, ttlMs, actor }),
    releaseClaim: (workspace, id, actor) => inWorkspace('release_claim', workspace, { workspace, id, actor }),
    claim,
    async claims(workspace) {
      await store.ended.known(workspace);
      const found: ClaimRecord[] = [];
      const asked = { workspace, list: CLAIMS, kind: claimRows.kind };
      for (const listed of await shownOf(readable, asked, ({ row }) => claimRows.of(row))) {
        // Effects of owners that have ended let go of the claim first; otherwise the list is right.
        const there = store.ended.any(workspace) ? await claim(workspace, listed.id) : listed;
        if (there !== null && isClaimActive(there, store.now())) found.push(there);
      }
      return found;
    },
    makeReservation: (request) => inWorkspace('make_reservation', request.workspace, request),
    releaseReservation: (workspace, id, actor) =>
      inWorkspace('release_reservation', workspace, { workspace, id, actor }),
    reservation: (workspace, id) => steps.preview('reservation', workspace, { workspace, id }),
    async reservations(workspace): Promise<readonly ReservationRecord[]> {
      const asked = { workspace, list: POOLS, kind: poolRows.kind };
      const pools = await shownOf(readable, asked, ({ row }) => poolRows.of(row));
      const now = store.now();
      return pools
        .flatMap(({ reservations }) => reservations)
        .filter(({ expiresAt }) => expiresAt > now)
        .toSorted((one, other) => (one.id < other.id ? -1 : 1));
    },

    async budgets(workspace): Promise<readonly BudgetRow[]> {
      const now = store.now();
      return budgetRows(turns, await turns.run(() => store.sums(workspace, 100_000)), now);
    },
    signWith: (head, key) => store.program?.lend(head, key),
    capCounts: (workspace) => capCounts(store, workspace),
    activatePolicy: async (version, budgets, change) => policies.activate(version, budgets, change ?? null, workspaces),
    ...policies.kept,
    onPolicyChanged: (listener) => void policyListeners.push(listener),
    ...installation,
    ...createPauseStore(runner, write, enter, keySeals),
    ...createSessionStore(store, runner),
    ...createAllowanceStore(readable, runner, inWorkspace),
    ...createPasskeyStore(store, runner, keySeals, newId),
    ...createNotifications(readable, runner, () => store.installId, workspaces),
    ...createEntities(store, runner, turns, write),
    onEntitiesChanged: (listener) => void entityListeners.push(listener),
    onKeysChanged: (listener) => void keyListeners.push(listener),
    onPausesChanged: (listener) => void pauseListeners.push(listener),
    async close() {
      clearInterval(flushing);
      lostAnswers.close();
      await flush().catch(() => undefined);
      await runner.close();
      await store.close();
    },
  };
}
