import type { Plan } from '../effects/steps/plan.ts';
import { putApproval, rejectionRows } from './approval-rows.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { boundId, effectRows, keyRows } from './effect-rows.ts';
import { budgetChange, rateChange } from './figures.ts';
import { putClaim, putReservation, putUses, removeReservation } from './held-rows.ts';
import { appendEvents } from './view.ts';

/** Turns the plan of a step into rows of its draft. */
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

/** The pools that an effect used before. */
function poolsOf(draft: Draft, effectId: string): readonly string[] {
  const stored = effectRows.replaced(draft, effectId);
  return stored?.kind !== 'effect' || stored.effect.uses.length === 0
    ? NONE
    : stored.effect.uses.map(({ pool }) => pool);
}
