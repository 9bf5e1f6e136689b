import type { EffectRecord, Hold } from '../model/effect.ts';
import type { Json } from '../../json/value.ts';
import type { LedgerDraft } from '../model/ledger.ts';
import { changed } from './lifecycle.ts';
import { isClaimActive } from './obligations.ts';
import type { BudgetChange, Plan, StepView } from './plan.ts';
import type { ClaimRecord } from '../model/claim.ts';

/** What to do with an effect's holds: post them as spent, give them back, or keep them while the outcome is unknown. */
export type HoldsEnd = 'post' | 'void' | 'keep';

/**
 * Releases what an effect has: claims, pool units and holds.
 * @param keepUntil an unknown effect keeps claims and units until then (ms); `null` releases at once
 */
export function release(
  view: StepView,
  effect: EffectRecord,
  end: HoldsEnd,
  keepUntil: number | null,
): {
  readonly effect: EffectRecord;
  readonly plan: Omit<Plan<unknown>, 'reply' | 'effects' | 'events'>;
  readonly events: readonly LedgerDraft[];
} {
  const claims: ClaimRecord[] = [];
  const claimsGone: string[] = [];
  for (const target of effect.claims) {
    const claim = view.claimOn(effect.workspace, target);
    if (claim === null || !claim.runningEffects.includes(effect.id)) continue;
    const left: ClaimRecord = {
      ...claim,
      runningEffects: claim.runningEffects.filter((id) => id !== effect.id),
      extendedUntil: Math.max(claim.extendedUntil, keepUntil ?? 0),
    };
    if (isClaimActive(left, view.now)) claims.push(left);
    else claimsGone.push(target);
  }
  const uses =
    keepUntil === null
      ? []
      : effect.uses.map((use) => ({ ...use, effectId: effect.id, agentId: effect.actor.agentId, until: keepUntil }));
  const money = endHolds(effect, end);
  return {
    effect: changed(effect, { holdState: money.holdState, claims: [], uses: keepUntil === null ? [] : effect.uses }),
    plan: { budgets: money.changes, claims, claimsGone, usesGone: effect.id, uses },
    events: money.events,
  };
}

function endHolds(
  effect: EffectRecord,
  end: HoldsEnd,
): {
  readonly holdState: EffectRecord['holdState'];
  readonly changes: readonly BudgetChange[];
  readonly events: readonly LedgerDraft[];
} {
  const { holds, holdState } = effect;
  const nothing = { holdState, changes: [], events: [] };
  const gateway = { type: 'gateway', id: 'budget' } as const;
  switch (end) {
    case 'keep':
      return nothing;
    case 'void':
      if (holdState !== 'held') return nothing;
      return {
        holdState: 'voided',
        changes: holds.map((hold) => budgetChange(hold, -hold.amount, 0)),
        events: [{ kind: 'budget.voided', effectId: effect.id, actor: gateway, data: { holds: holdsToWire(holds) } }],
      };
    case 'post': {
      if (holdState !== 'held' && holdState !== 'voided') return nothing;
      // Voided holds are posted too, if late evidence shows that the action happened.
      const given = holdState === 'held' ? -1 : 0;
      return {
        holdState: 'posted',
        changes: holds.map((hold) => budgetChange(hold, given * hold.amount, hold.amount)),
        events: [
          {
            kind: holdState === 'held' ? 'budget.posted' : 'budget.overdraft',
            effectId: effect.id,
            actor: gateway,
            data: { holds: holdsToWire(holds) },
          },
        ],
      };
    }
  }
}

function budgetChange({ budget, unit, bucket, window }: Hold, hold: number, spend: number): BudgetChange {
  return { budget, unit, bucket, window, limit: null, hold, spend };
}

/** Holds as ledger data. */
export function holdsToWire(holds: readonly Hold[]): Json {
  return holds.map(({ budget, unit, bucket, window, amount }) => ({ budget, unit, bucket, window, amount }));
}
