import type { LedgerDraft } from '../../effects/ledger.ts';
import type { Plan, StepView } from '../../effects/plan.ts';
import { type ApprovalsTable, openApprovalsTable } from './approvals-table.ts';
import { type ControlsTable, openControlsTable } from './controls-table.ts';
import type { SqlDatabase } from './driver.ts';
import { type EffectsTable, openEffectsTable } from './effects-table.ts';
import { type HoldingsTable, openHoldingsTable } from './holdings-table.ts';
import { type KeysTable, openKeysTable } from './keys-table.ts';
import { type LeftOvers, openLeftOvers } from './left-overs.ts';
import { type LedgerTable, openLedgerTable } from './ledger-table.ts';
import { type MetaTable, openMetaTable } from './meta-table.ts';
import { openTalliesTable, type TalliesTable } from './tallies-table.ts';
import { createThrottle, type Throttle } from './throttle.ts';

/** What waits outside for a transaction to be durable. */
export interface Changes {
  readonly pauses: Set<string>;
  readonly keys: Set<string>;
}

/** One open database: its tables, and steps that run on them within a transaction that the caller begins and ends. */
export interface Session {
  readonly effects: EffectsTable;
  readonly ledger: LedgerTable;
  readonly tallies: TalliesTable;
  readonly approvals: ApprovalsTable;
  readonly holdings: HoldingsTable;
  readonly controls: ControlsTable;
  readonly keys: KeysTable;
  readonly meta: MetaTable;
  readonly throttle: Throttle;
  /** Of the transaction under way. */
  readonly changes: Changes;
  readonly leftOvers: LeftOvers;
  /** What steps see; its `now` is the transaction's. */
  readonly view: StepView;
  /** Sets the time of the transaction that begins. */
  beginAt(now: number): void;
  /** How many writes were made; grows. Lets the caller tell a step that failed before it wrote from one that tore. */
  writes(): number;
  /** Evaluates a step and writes its plan. */
  run<Request, Reply>(
    workspace: string,
    step: (view: StepView, request: Request) => Plan<Reply>,
    request: Request,
  ): Reply;
  apply<Reply>(workspace: string, plan: Plan<Reply>): Reply;
  append(workspace: string, events: readonly LedgerDraft[]): void;
  /** Writes what was gathered in memory; right before the commit. */
  flush(): void;
  /** The transaction was rolled back, or another process wrote: nothing in memory holds. */
  forget(): void;
}

/** @param plain a configured connection whose tables exist */
export function openSession(plain: SqlDatabase): Session {
  let writes = 0;
  let now = 0;
  const database: SqlDatabase = {
    ...plain,
    prepare(sql) {
      const statement = plain.prepare(sql);
      return {
        ...statement,
        run(...values) {
          writes += 1;
          return statement.run(...values);
        },
      };
    },
  };
  const effects = openEffectsTable(database);
  const ledger = openLedgerTable(database);
  const tallies = openTalliesTable(database);
  const approvals = openApprovalsTable(database);
  const holdings = openHoldingsTable(database);
  const controls = openControlsTable(database);
  const keys = openKeysTable(database);
  const meta = openMetaTable(database);
  const throttle = createThrottle();
  const changes: Changes = { pauses: new Set(), keys: new Set() };

  const recorded: StepView = {
    get now() {
      return now;
    },
    get epoch() {
      return meta.get().epoch;
    },
    // Beside the lock no other process sends; a process that froze finds its lease over when it wakes.
    maxFreezeMs: 0,
    versions: (workspace) => ({ policy: meta.get().policy, pauses: controls.pauseVersion(workspace) }),
    nextSeq: ledger.nextSeq,
    binding: effects.binding,
    effect: effects.effect,
    rejection: (workspace, fingerprint) => approvals.rejection(workspace, fingerprint, now),
    approval: approvals.get,
    pendingApprovals: approvals.pendingOf,
    claim: holdings.claim,
    claimOn: holdings.claimOn,
    claimCount: (workspace, agentId) => holdings.activeClaims(workspace, agentId, now),
    claimsOfKey: (workspace, keyId) => holdings.claimsOfKey(workspace, keyId, now),
    reservation: holdings.reservation,
    reservationsOf: (workspace, pool) => holdings.reservations(workspace, pool, now),
    reservationsOfKey: (workspace, keyId) => holdings.reservationsOfKey(workspace, keyId, now),
    usesOf: (workspace, pool) => holdings.uses(workspace, pool, now),
    budget: (workspace, budget, bucket, window) => tallies.budget(workspace, budget, bucket, window, now),
    rate: (workspace, id, bucket, windowMs) => tallies.rate(workspace, id, bucket, windowMs, now),
  };

  function append(workspace: string, events: readonly LedgerDraft[]): void {
    if (events.length === 0) return;
    writes += 1;
    ledger.append(workspace, ledger.row(workspace, meta.get().epoch, now), events, []);
  }

  function write(workspace: string, plan: Plan<unknown>): void {
    writes += 1;
    const events = plan.events ?? [];
    const row = events.length === 0 ? null : ledger.row(workspace, meta.get().epoch, now);
    const named: string[] = [];
    for (const effect of plan.effects ?? []) if (effects.put(effect, row)) named.push(effect.record.id);
    for (const approval of plan.approvals ?? []) approvals.put(approval);
    for (const change of plan.budgets ?? []) tallies.change(workspace, change, now);
    for (const rate of plan.rates ?? []) tallies.count(workspace, rate, now);
    for (const target of plan.claimsGone ?? []) holdings.removeClaim(workspace, target);
    for (const claim of plan.claims ?? []) holdings.putClaim(claim);
    if (plan.reservationGone !== undefined) holdings.removeReservation(workspace, plan.reservationGone);
    if (plan.reservation !== undefined) holdings.putReservation(plan.reservation);
    if (plan.usesGone !== undefined) holdings.removeUses(workspace, plan.usesGone);
    for (const use of plan.uses ?? []) holdings.putUse(workspace, use);
    if (plan.rejection !== undefined) approvals.reject(workspace, plan.rejection.fingerprint, plan.rejection);
    if (row !== null) ledger.append(workspace, row, events, named);
  }

  function apply<Reply>(workspace: string, plan: Plan<Reply>): Reply {
    const { reply, throttle: word } = plan;
    const written = word === undefined || throttle.admits(word, workspace, plan.events ?? [], now);
    if (written && changesAnything(plan)) write(workspace, plan);
    return reply;
  }

  const leftOvers = openLeftOvers(effects, holdings, recorded, apply);
  const { view } = leftOvers;

  return {
    effects,
    ledger,
    tallies,
    approvals,
    holdings,
    controls,
    keys,
    meta,
    throttle,
    changes,
    leftOvers,
    view,
    beginAt(at) {
      now = at;
      for (const { workspace, event } of throttle.due(at)) append(workspace, [event]);
    },
    writes: () => writes,
    run(workspace, step, request) {
      effects.endStep();
      return apply(workspace, step(view, request));
    },
    apply,
    append,
    flush() {
      effects.flush();
      ledger.flush();
      tallies.flush();
      meta.tick(now);
    },
    forget() {
      effects.forget();
      ledger.forget();
      tallies.forget();
      holdings.forget();
      controls.forget();
      meta.forget();
      leftOvers.forget();
      changes.pauses.clear();
      changes.keys.clear();
    },
  };
}

/** Whether a plan is more than its answer. */
function changesAnything(plan: Plan<unknown>): boolean {
  for (const member in plan) if (member !== 'reply' && member !== 'throttle') return true;
  return false;
}
