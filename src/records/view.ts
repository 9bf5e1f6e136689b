import type { AllowanceRecord } from '../effects/model/allowance.ts';
import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { ClaimRecord, ReservationRecord } from '../effects/model/claim.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import type { SeenEntity } from '../effects/model/entity.ts';
import type { LedgerDraft } from '../effects/model/ledger.ts';
import { quote, readOwnJson } from '../json/text.ts';
import type { Binding, BudgetCounter, Plan, RunningUse, StepView } from '../effects/steps/plan.ts';
import type { SeenVersions } from '../effects/store.ts';
import type { EventDraft } from '../stores/port.ts';
import { allowanceAlike, allowanceRows, putAllowance } from './allowance-rows.ts';
import { approvalRows, pendingOf, putApproval, rejectionRows } from './approval-rows.ts';
import { versionsOf } from './control-rows.ts';
import { type Cap, countOf } from './counted.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { entityVersion } from './entity-rows.ts';
import { boundId, effectRows, keyRows } from './effect-rows.ts';
import { budgetChange, budgetSum, rateChange, rateSum } from './counters.ts';
import {
  claimById,
  claimOn,
  claimsOfAgent,
  claimsOfKey,
  poolState,
  putClaim,
  putReservation,
  putUses,
  removeReservation,
  reservationRows,
  reservationsOfKey,
} from './held-rows.ts';

/** How many effects of claims and pools a step looks at besides its own. */
const AT_ONCE = 100;

/** Who hears of what a step looks at, and may throw to have something else done first. */
export interface ReadObserver {
  /** Each effect that is looked at: it throws if that has to be declared lost first, because its owner has ended. */
  seen(effect: EffectRecord): void;
  /** Each cap that is reached: it throws if what is over has to be given back first. */
  reached(cap: string): void;
}

/** The records that a step sees in its draft. They are of one workspace, so nothing asks which. */
export class RecordsView implements StepView {
  readonly now: number;
  readonly epoch: number;
  readonly maxFreezeMs: number;
  readonly leaseOwner: string | null;
  readonly #draft: Draft;
  readonly #someEnded: boolean;
  readonly #observer: ReadObserver;

  /** @param someEnded whether owners have ended and may have left running effects behind */
  constructor(
    draft: Draft,
    { maxFreezeMs, leaseOwner }: Pick<StepView, 'maxFreezeMs' | 'leaseOwner'>,
    someEnded: boolean,
    observer: ReadObserver,
  ) {
    this.now = draft.now;
    this.epoch = draft.epoch;
    this.maxFreezeMs = maxFreezeMs;
    this.leaseOwner = leaseOwner;
    this.#draft = draft;
    this.#someEnded = someEnded;
    this.#observer = observer;
  }

  versions(): SeenVersions {
    return versionsOf(this.#draft);
  }

  nextSeq(): number {
    return this.#draft.nextSeq();
  }

  binding(_: string, key: string): Binding | null {
    const id = boundId(this.#draft, key);
    const stored = id === null ? null : effectRows.get(this.#draft, id);
    if (stored?.kind === 'effect') this.#observer.seen(stored.effect);
    return stored;
  }

  effect(_: string, id: string): EffectRecord | null {
    const stored = effectRows.get(this.#draft, id);
    if (stored?.kind !== 'effect') return null;
    this.#observer.seen(stored.effect);
    return stored.effect;
  }

  rejection(_: string, fingerprint: string): { readonly effectId: string; readonly until: number } | null {
    const rejection = rejectionRows.get(this.#draft, fingerprint, MOSTLY_ABSENT);
    return rejection !== null && rejection.until > this.now ? rejection : null;
  }

  entityVersion(_: string, seen: SeenEntity): number {
    return entityVersion(this.#draft, seen);
  }

  approval(_: string, id: string): ApprovalRecord | null {
    return approvalRows.get(this.#draft, id);
  }

  pendingApprovals(_: string, agentId: string): number {
    return pendingOf(this.#draft, agentId);
  }

  allowance(_: string, id: string): AllowanceRecord | null {
    return allowanceRows.get(this.#draft, id);
  }

  allowanceAlike(_: string, likeness: string): AllowanceRecord | null {
    return allowanceAlike(this.#draft, likeness);
  }

  claim(_: string, id: string): ClaimRecord | null {
    const claim = claimById(this.#draft, id);
    if (claim !== null) this.#settleRunning(claim.runningEffects);
    return claim;
  }

  claimOn(_: string, target: string): ClaimRecord | null {
    const claim = claimOn(this.#draft, target);
    if (claim !== null) this.#settleRunning(claim.runningEffects);
    return claim;
  }

  claimCount(_: string, agentId: string): number {
    return this.#counted(claimsOfAgent(agentId));
  }

  claimsOfKey(_: string, keyId: string): number {
    return this.#counted(claimsOfKey(keyId));
  }

  reservation(_: string, id: string): ReservationRecord | null {
    return reservationRows.get(this.#draft, id);
  }

  reservationsOf(_: string, pool: string): readonly ReservationRecord[] {
    return poolState(this.#draft, pool).reservations;
  }

  reservationsOfKey(_: string, keyId: string): number {
    return this.#counted(reservationsOfKey(keyId));
  }

  usesOf(_: string, pool: string): readonly RunningUse[] {
    const { uses } = poolState(this.#draft, pool);
    this.#settleRunning(uses.flatMap(({ effectId, until }) => (until === null ? [effectId] : [])));
    return uses;
  }

  budget(_: string, budget: string, bucket: string, window: string): BudgetCounter {
    return this.#draft.counter(budgetSum({ budget, bucket, window })) ?? NOTHING_SPENT;
  }

  budgetAsStored(_: string, budget: string, bucket: string, window: string): BudgetCounter {
    return this.#draft.counterAsStored(budgetSum({ budget, bucket, window }));
  }

  rate(_: string, id: string, bucket: string, windowMs: number): number {
    return this.#draft.counter(rateSum({ id, bucket, windowMs }))?.spent ?? 0;
  }

  rateAsStored(_: string, id: string, bucket: string, windowMs: number): number {
    return this.#draft.counterAsStored(rateSum({ id, bucket, windowMs })).spent;
  }

  /** Looks at the effects that hold something, so that those of owners that have ended let go first. */
  #settleRunning(ids: readonly string[]): void {
    if (this.#someEnded) for (const id of ids.slice(0, AT_ONCE)) this.effect('', id);
  }

  #counted({ name, limit }: Cap): number {
    const count = countOf(this.#draft, name);
    if (count >= limit) this.#observer.reached(name);
    return count;
  }
}

const NOTHING_SPENT: BudgetCounter = { spent: 0, held: 0, rows: 0 };

export function appendEvents(draft: Draft, events: readonly LedgerDraft[]): void {
  draft.events(events.map(eventDraft));
}

export function eventDraft({ kind, effectId, actor, data }: LedgerDraft): EventDraft {
  return { about: effectId, text: `["${kind}","${actor.type}",${quote(actor.id)},${JSON.stringify(data)}]` };
}

export function eventOf(about: string | null, text: string): LedgerDraft {
  // Only `eventDraft` writes the texts of the ledger.
  const [kind, type, id, data] =
    readOwnJson<
      readonly [
        kind: LedgerDraft['kind'],
        actorType: LedgerDraft['actor']['type'],
        actorId: string,
        data: LedgerDraft['data'],
      ]
    >(text);
  return { kind, effectId: about, actor: { type, id }, data };
}

export function writePlan(draft: Draft, plan: Plan<unknown>): void {
  const poolsBefore = plan.usesGone === undefined ? NONE : poolsOf(draft, plan.usesGone);
  for (const { record, binding } of plan.effects ?? []) {
    if (binding === 'bind') {
      boundId(draft, record.idempotencyKey);
      keyRows.put(draft, record.idempotencyKey, record.id);
    }
    if (binding === 'release' && keyRows.get(draft, record.idempotencyKey) === record.id)
      keyRows.put(draft, record.idempotencyKey, null);
    effectRows.put(draft, record.id, { kind: 'effect', effect: record });
  }
  if (plan.bindAlso !== undefined) {
    boundId(draft, plan.bindAlso.key);
    keyRows.put(draft, plan.bindAlso.key, plan.bindAlso.effectId);
  }
  for (const approval of plan.approvals ?? []) putApproval(draft, approval);
  for (const allowance of plan.allowances ?? []) putAllowance(draft, allowance);
  for (const change of plan.budgets ?? []) draft.sum(budgetChange(change));
  for (const rate of plan.rates ?? []) draft.sum(rateChange(rate));
  for (const target of plan.claimsGone ?? []) putClaim(draft, target, null);
  for (const claim of plan.claims ?? []) putClaim(draft, claim.target, claim);
  if (plan.reservationGone !== undefined) removeReservation(draft, plan.reservationGone);
  if (plan.reservation !== undefined) putReservation(draft, plan.reservation);
  const { uses = [] } = plan;
  const effectId = plan.usesGone ?? uses[0]?.effectId;
  if (effectId !== undefined && poolsBefore.length + uses.length > 0) putUses(draft, effectId, poolsBefore, uses);
  if (plan.rejection !== undefined) {
    const { fingerprint, effectId, until } = plan.rejection;
    rejectionRows.get(draft, fingerprint, MOSTLY_ABSENT);
    rejectionRows.put(draft, fingerprint, { effectId, until });
  }
  appendEvents(draft, plan.events ?? []);
  if (plan.validUntil !== undefined) draft.validUntil(plan.validUntil);
}

const NONE: readonly string[] = [];

function poolsOf(draft: Draft, effectId: string): readonly string[] {
  const stored = effectRows.replaced(draft, effectId);
  return stored?.kind !== 'effect' || stored.effect.uses.length === 0
    ? NONE
    : stored.effect.uses.map(({ pool }) => pool);
}
