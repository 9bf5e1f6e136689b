import type { EffectRecord } from '../effects/model/effect.ts';
import type { Plan } from '../effects/steps/plan.ts';
import { putApproval, rejectionRows } from './approval-rows.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { boundId, effectRows, keyRows } from './effect-rows.ts';
import { budgetChange, rateChange } from './figures.ts';
import { putClaim, putReservation, putUses, removeReservation } from './held-rows.ts';
import { appendEvents } from './view.ts';

/** Turns the plan of a step into rows of its draft. */
export function writePlan(draft: Draft, plan: Plan<unknown>, known: (id: string) => EffectRecord | null): void {
  const poolsBefore = plan.usesGone === undefined ? [] : (known(plan.usesGone)?.uses.map(({ pool }) => pool) ?? []);
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
  if (plan.usesGone !== undefined || (plan.uses ?? []).length > 0) {
    const [first] = plan.uses ?? [];
    const effectId = plan.usesGone ?? first?.effectId;
    if (effectId !== undefined) putUses(draft, effectId, poolsBefore, plan.uses ?? []);
  }
  if (plan.rejection !== undefined) {
    const { fingerprint, effectId, until } = plan.rejection;
    rejectionRows.get(draft, fingerprint, MOSTLY_ABSENT);
    rejectionRows.put(draft, fingerprint, { effectId, until });
  }
  appendEvents(draft, plan.events ?? []);
  if (plan.validUntil !== undefined) draft.validUntil(plan.validUntil);
}
