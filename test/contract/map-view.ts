import type { AllowanceRecord } from '../../src/effects/model/allowance.ts';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { ClaimRecord, ReservationRecord } from '../../src/effects/model/claim.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { LedgerDraft } from '../../src/effects/model/ledger.ts';
import type { Plan, RunningUse, StepView } from '../../src/effects/steps/plan.ts';
import type { SeenVersions } from '../../src/effects/store.ts';

interface BudgetCounter {
  readonly spent: number;
  readonly held: number;
  /** Postings of a rolling window, by the time of their settlement. */
  readonly postings: readonly { readonly at: number; readonly amount: number }[];
}

/** All that the steps read and write, in memory: the reference that stores are compared with, and a simulator's store. */
export interface MapState {
  epoch: number;
  maxFreezeMs: number;
  versions: SeenVersions;
  effects: Map<string, EffectRecord>;
  /** Effect id by idempotency key. */
  bindings: Map<string, string>;
  rejections: Map<string, { readonly effectId: string; readonly until: number }>;
  approvals: Map<string, ApprovalRecord>;
  allowances: Map<string, AllowanceRecord>;
  claims: Map<string, ClaimRecord>;
  reservations: Map<string, ReservationRecord>;
  uses: Map<string, readonly RunningUse[]>;
  budgets: Map<string, BudgetCounter>;
  rates: Map<string, readonly number[]>;
  ledger: (LedgerDraft & { readonly seq: number; readonly at: number })[];
}

/** A store with nothing in it. */
export function emptyState(versions: SeenVersions): MapState {
  return {
    epoch: 1,
    maxFreezeMs: 0,
    versions,
    effects: new Map(),
    bindings: new Map(),
    rejections: new Map(),
    approvals: new Map(),
    allowances: new Map(),
    claims: new Map(),
    reservations: new Map(),
    uses: new Map(),
    budgets: new Map(),
    rates: new Map(),
    ledger: [],
  };
}

/** A copy that shares records (which are immutable) and nothing else. */
export function copyState(state: MapState): MapState {
  return {
    ...state,
    effects: new Map(state.effects),
    bindings: new Map(state.bindings),
    rejections: new Map(state.rejections),
    approvals: new Map(state.approvals),
    allowances: new Map(state.allowances),
    claims: new Map(state.claims),
    reservations: new Map(state.reservations),
    uses: new Map(state.uses),
    budgets: new Map(state.budgets),
    rates: new Map(state.rates),
    ledger: [...state.ledger],
  };
}

function rowKey(budget: string, bucket: string, window: string): string {
  return JSON.stringify([budget, bucket, window]);
}

/** What a step sees of one workspace's state at `now`. */
export function viewOf(state: MapState, now: number): StepView {
  const budget: StepView['budget'] = (_workspace, budget, bucket, window) => {
    const row = state.budgets.get(rowKey(budget, bucket, window));
    const rows = [...state.budgets.keys()].filter((key) => JSON.parse(key)[0] === budget).length;
    if (row === undefined) return { spent: 0, held: 0, rows };
    const rolling = /^r:(\d+)$/.exec(window)?.[1];
    if (rolling === undefined) return { spent: row.spent, held: row.held, rows };
    const spent = row.postings.reduce((sum, { at, amount }) => (at > now - Number(rolling) ? sum + amount : sum), 0);
    return { spent, held: row.held, rows };
  };
  const rate: StepView['rate'] = (_workspace, id, bucket, windowMs) =>
    (state.rates.get(JSON.stringify([id, bucket])) ?? []).filter((at) => at > now - windowMs).length;
  return {
    now,
    epoch: state.epoch,
    maxFreezeMs: state.maxFreezeMs,
    leaseOwner: null,
    versions: () => state.versions,
    nextSeq: () => state.ledger.length + 1,
    binding(_workspace, key) {
      const id = state.bindings.get(key);
      const effect = id === undefined ? undefined : state.effects.get(id);
      return effect === undefined ? null : { kind: 'effect', effect };
    },
    effect: (_workspace, id) => state.effects.get(id) ?? null,
    entityVersion: () => 0,
    rejection(_workspace, fingerprint) {
      const rejection = state.rejections.get(fingerprint);
      return rejection !== undefined && rejection.until > now ? rejection : null;
    },
    approval: (_workspace, id) => state.approvals.get(id) ?? null,
    pendingApprovals: (_workspace, agentId) =>
      [...state.effects.values()].filter(
        ({ life, actor }) => life.state === 'pending_approval' && actor.agentId === agentId,
      ).length,
    allowance: (_workspace, id) => state.allowances.get(id) ?? null,
    allowanceAlike: (_workspace, likeness) =>
      [...state.allowances.values()].findLast((one) => one.likeness === likeness && one.ended === undefined) ?? null,
    claim: (_workspace, id) => [...state.claims.values()].find((claim) => claim.id === id) ?? null,
    claimOn: (_workspace, target) => state.claims.get(target) ?? null,
    claimCount: (_workspace, agentId) =>
      [...state.claims.values()].filter((claim) => claim.agentId === agentId && claim.expiresAt > now).length,
    claimsOfKey: (_workspace, keyId) =>
      [...state.claims.values()].filter((claim) => claim.keyId === keyId && claim.expiresAt > now).length,
    reservation: (_workspace, id) => state.reservations.get(id) ?? null,
    reservationsOf: (_workspace, pool) =>
      [...state.reservations.values()].filter((one) => one.pool === pool && one.expiresAt > now),
    reservationsOfKey: (_workspace, keyId) =>
      [...state.reservations.values()].filter((one) => one.keyId === keyId && one.expiresAt > now).length,
    usesOf: (_workspace, pool) =>
      [...state.uses.values()].flat().filter((use) => use.pool === pool && (use.until === null || use.until > now)),
    budget,
    budgetAsStored: budget,
    rate,
    rateAsStored: rate,
  };
}

/** Applies a plan to the state, all of it. @returns the plan's reply */
export function applyPlan<Reply>(state: MapState, plan: Plan<Reply>, now: number): Reply {
  for (const { record, binding } of plan.effects ?? []) {
    state.effects.set(record.id, record);
    if (binding === 'bind') state.bindings.set(record.idempotencyKey, record.id);
    if (binding === 'release' && state.bindings.get(record.idempotencyKey) === record.id)
      state.bindings.delete(record.idempotencyKey);
  }
  for (const approval of plan.approvals ?? []) state.approvals.set(approval.id, approval);
  for (const allowance of plan.allowances ?? []) state.allowances.set(allowance.id, allowance);
  for (const { budget, bucket, window, hold, spend } of plan.budgets ?? []) {
    const key = rowKey(budget, bucket, window);
    const row = state.budgets.get(key) ?? { spent: 0, held: 0, postings: [] };
    state.budgets.set(key, {
      spent: row.spent + spend,
      held: row.held + hold,
      postings: spend === 0 ? row.postings : [...row.postings, { at: now, amount: spend }],
    });
  }
  for (const { id, bucket } of plan.rates ?? []) {
    const key = JSON.stringify([id, bucket]);
    state.rates.set(key, [...(state.rates.get(key) ?? []), now]);
  }
  for (const target of plan.claimsGone ?? []) state.claims.delete(target);
  for (const claim of plan.claims ?? []) state.claims.set(claim.target, claim);
  if (plan.reservationGone !== undefined) state.reservations.delete(plan.reservationGone);
  if (plan.reservation !== undefined) state.reservations.set(plan.reservation.id, plan.reservation);
  if (plan.usesGone !== undefined) state.uses.delete(plan.usesGone);
  for (const use of plan.uses ?? []) state.uses.set(use.effectId, [...(state.uses.get(use.effectId) ?? []), use]);
  if (plan.rejection !== undefined) state.rejections.set(plan.rejection.fingerprint, plan.rejection);
  for (const event of plan.events ?? []) state.ledger.push({ ...event, seq: state.ledger.length + 1, at: now });
  return plan.reply;
}
